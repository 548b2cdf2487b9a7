#include "server/sweep/request_factory.h"

#include <nlohmann/json.hpp>

#include "assay/v1/inference.pb.h"

namespace assay::sweep {

using nlohmann::json;

std::string user_message(const std::string& content) {
  return json::array({{{"role", "user"}, {"content", content}}}).dump(-1, ' ', false, json::error_handler_t::replace);
}

namespace {

json messages_of(const DatasetEntry& entry) {
  return json::parse(entry.messages_json.empty() ? user_message(entry.prompt) : entry.messages_json);
}

}  // namespace

RequestFactory::RequestFactory(const SweepOptions& options, std::string model, PromptPlan prompts,
                               std::string cache_salt)
    : options_(options), model_(std::move(model)), prompts_(std::move(prompts)), cache_salt_(std::move(cache_salt)) {}

LoadRequest RequestFactory::request(uint64_t index) const {
  const DatasetEntry entry = prompts_.prompt(index);
  LoadRequest request;
  request.requested_output_tokens = entry.output_tokens.value_or(options_.output_tokens);
  request.path = options_.chat ? "/v1/chat/completions" : "/v1/completions";
  request.body = options_.grpc_address.empty() ? http_body(entry, request.requested_output_tokens)
                                               : grpc_body(entry, request.requested_output_tokens);
  return request;
}

std::string RequestFactory::http_body(const DatasetEntry& entry, int64_t output_tokens) const {
  json body = {{"model", model_},
               {"max_tokens", output_tokens},
               {"temperature", 0.0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (!options_.openai_fields_only) {
    body["ignore_eos"] = true;
    body["return_token_ids"] = true;
    body["cache_salt"] = cache_salt_;
  }
  if (options_.certificate) body["certificate"] = {{"report", true}};
  if (options_.chat) {
    body["messages"] = messages_of(entry);
  } else {
    body["prompt"] = entry.prompt;
  }
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string RequestFactory::grpc_body(const DatasetEntry& entry, int64_t output_tokens) const {
  v1::GenerateRequest message;
  message.set_model(model_);
  message.mutable_sampling()->set_max_tokens(static_cast<int32_t>(output_tokens));
  message.mutable_sampling()->set_temperature(0.0);
  message.mutable_sampling()->set_ignore_eos(!options_.openai_fields_only);
  if (!options_.openai_fields_only) message.set_cache_salt(cache_salt_);
  if (options_.certificate) message.mutable_certificate()->set_report(true);
  if (!options_.chat) {
    message.set_prompt(entry.prompt);
    return message.SerializeAsString();
  }
  for (const json& each : messages_of(entry)) {
    v1::Message& turn = *message.mutable_conversation()->add_messages();
    turn.set_role(each.value("role", ""));
    const json content = each.value("content", json());
    turn.set_content(content.is_string() ? content.get<std::string>() : content.dump());
  }
  return message.SerializeAsString();
}

}  // namespace assay::sweep
