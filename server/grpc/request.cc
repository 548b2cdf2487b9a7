#include "server/grpc/request.h"

#include "server/service/bounded_json.h"
#include "server/service/fields.h"
#include "server/service/sampling_fields.h"
#include "server/service/status.h"

namespace assay::rpc {
namespace {

using Json = nlohmann::ordered_json;

template <class List>
Json array_of(const List& list) {
  Json array = Json::array();
  for (const auto& item : list) array.push_back(item);
  return array;
}

// The message as the JSON object that HTTP would have got.
Json sampling_json(const v1::SamplingOptions& options) {
  Json json = Json::object();
  if (options.has_temperature()) json["temperature"] = options.temperature();
  if (options.has_top_p()) json["top_p"] = options.top_p();
  if (options.has_top_k()) json["top_k"] = options.top_k();
  if (options.has_min_p()) json["min_p"] = options.min_p();
  if (options.has_seed()) json["seed"] = options.seed();
  if (options.has_repetition_penalty()) json["repetition_penalty"] = options.repetition_penalty();
  if (options.has_presence_penalty()) json["presence_penalty"] = options.presence_penalty();
  if (options.has_frequency_penalty()) json["frequency_penalty"] = options.frequency_penalty();
  for (const auto& [id, bias] : options.logit_bias()) json["logit_bias"][std::to_string(id)] = bias;
  if (options.has_max_tokens()) json["max_tokens"] = options.max_tokens();
  if (options.has_min_tokens()) json["min_tokens"] = options.min_tokens();
  if (options.stop_size() > 0) json["stop"] = array_of(options.stop());
  if (options.stop_token_ids_size() > 0) json["stop_token_ids"] = array_of(options.stop_token_ids());
  if (options.has_n()) json["n"] = options.n();
  if (options.has_logprobs()) json["logprobs"] = options.logprobs();
  return json;
}

Json certificate_json(const v1::CertificateOptions& options) {
  Json json = Json::object();
  if (options.has_report()) json["report"] = options.report();
  if (options.has_tau()) json["tau"] = options.tau();
  if (options.has_delta()) json["delta"] = options.delta();
  if (!options.policy().empty()) json["policy"] = options.policy();
  return json;
}

absl::StatusOr<Conversation> parse_conversation(const v1::Conversation& message) {
  Conversation conversation;
  conversation.messages = Json::array();
  for (const v1::Message& each : message.messages()) {
    Json json = {{"role", each.role()}, {"content", each.content()}};
    if (!each.name().empty()) json["name"] = each.name();
    conversation.messages.push_back(std::move(json));
  }
  if (message.has_add_generation_prompt()) conversation.add_generation_prompt = message.add_generation_prompt();
  conversation.continue_final_message = message.continue_final_message();
  if (message.chat_template_kwargs_json().empty()) return conversation;
  absl::StatusOr<Json> kwargs = parse_bounded_json(message.chat_template_kwargs_json());
  if (!kwargs.ok()) {
    return field_error("chat_template_kwargs_json", "chat_template_kwargs_json " + std::string(kwargs.status().message()));
  }
  if (!kwargs->is_object()) return field_error("chat_template_kwargs_json", "chat_template_kwargs_json must be a JSON object");
  conversation.chat_template_kwargs = *std::move(kwargs);
  return conversation;
}

absl::Status parse_sampling_options(const v1::GenerateRequest& message, GenerateRequest& request) {
  const v1::SamplingOptions& options = message.sampling();
  Json json = sampling_json(options);
  if (message.has_certificate()) json["certificate"] = certificate_json(message.certificate());
  Fields fields(json);
  request.n = static_cast<int32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  request.stop = parse_stop(fields);
  request.certificate = parse_certificate(fields);
  request.sampling = parse_sampling(fields);
  request.sampling.ignore_eos = options.ignore_eos();
  request.sampling.logprobs = static_cast<int32_t>(fields.integer("logprobs", 0, INT32_MAX).value_or(-1));
  request.include_stop_str_in_output = options.include_stop_str_in_output();
  if (options.has_skip_special_tokens()) request.skip_special_tokens = options.skip_special_tokens();
  return fields.status();
}

}  // namespace

absl::StatusOr<GenerateRequest> parse_generate(const v1::GenerateRequest& message) {
  GenerateRequest request;
  request.stream = true;
  request.model = message.model();
  request.cache_salt = message.cache_salt();
  request.priority = message.priority();
  if (message.has_add_special_tokens()) request.add_special_tokens = message.add_special_tokens();
  if (message.has_conversation()) {
    absl::StatusOr<Conversation> conversation = parse_conversation(message.conversation());
    if (!conversation.ok()) return conversation.status();
    request.input = *std::move(conversation);
  } else if (message.has_prompt_token_ids()) {
    const auto& ids = message.prompt_token_ids().ids();
    request.input = std::vector<TextPrompt>{std::vector<int32_t>(ids.begin(), ids.end())};
  } else if (message.has_prompt()) {
    request.input = std::vector<TextPrompt>{message.prompt()};
  } else {
    return field_error("prompt", "prompt is missing");
  }
  if (absl::Status status = parse_sampling_options(message, request); !status.ok()) return status;
  return request;
}

absl::StatusOr<TokenizeRequest> parse_tokenize(const v1::TokenizeRequest& message) {
  TokenizeRequest request;
  if (message.has_add_special_tokens()) request.add_special_tokens = message.add_special_tokens();
  if (message.has_conversation()) {
    absl::StatusOr<Conversation> conversation = parse_conversation(message.conversation());
    if (!conversation.ok()) return conversation.status();
    request.input = *std::move(conversation);
  } else if (message.has_prompt()) {
    request.input = message.prompt();
  } else {
    return field_error("prompt", "prompt (a string) or messages is missing");
  }
  return request;
}

}  // namespace assay::rpc
