#include "server/sweep/request_factory.h"

#include <nlohmann/json.hpp>

namespace assay::sweep {

using nlohmann::json;

std::string user_message(const std::string& content) {
  return json::array({{{"role", "user"}, {"content", content}}}).dump(-1, ' ', false, json::error_handler_t::replace);
}

RequestFactory::RequestFactory(const SweepOptions& options, std::string model, PromptPlan prompts,
                               std::string cache_salt)
    : options_(options), model_(std::move(model)), prompts_(std::move(prompts)), cache_salt_(std::move(cache_salt)) {}

LoadRequest RequestFactory::request(uint64_t index) const {
  const DatasetEntry entry = prompts_.prompt(index);
  const int64_t output_tokens = entry.output_tokens.value_or(options_.output_tokens);
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
    body["messages"] = json::parse(entry.messages_json.empty() ? user_message(entry.prompt) : entry.messages_json);
  } else {
    body["prompt"] = entry.prompt;
  }
  LoadRequest request;
  request.path = options_.chat ? "/v1/chat/completions" : "/v1/completions";
  request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  request.requested_output_tokens = output_tokens;
  return request;
}

}  // namespace assay::sweep
