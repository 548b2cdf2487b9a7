#include "server/http/openai_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/http/unsupported.h"
#include "server/service/fields.h"
#include "server/service/sampling_fields.h"
#include "server/service/status.h"

namespace assay::http {
namespace {

constexpr size_t kMaxAllChoices = 1024;  // prompts x best_of

// Records what is wrong and gives what came before it.
std::vector<int32_t> token_list(Fields& fields, const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& item : list) {
    const absl::StatusOr<int32_t> id = token_id(item, "prompt");
    if (!id.ok()) {
      fields.fail("prompt", std::string(id.status().message()));
      break;
    }
    ids.push_back(*id);
  }
  return ids;
}

bool all_numbers(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_number(); });
}

constexpr const char* kPromptForms = "prompt must be a string, an array of strings, an array of token ids or an array of "
                                     "arrays of token ids";

// An array of token ids, or one of strings and arrays of token ids.
void parse_prompt_list(Fields& fields, const Json& list, std::vector<TextPrompt>& prompts) {
  if (!list.empty() && all_numbers(list)) {
    prompts.emplace_back(token_list(fields, list));
    return;
  }
  const bool strings = !list.empty() && list.front().is_string();
  for (const Json& item : list) {
    if (strings && item.is_string()) {
      prompts.emplace_back(item.get<std::string>());
    } else if (!strings && item.is_array() && all_numbers(item)) {
      prompts.emplace_back(token_list(fields, item));
    } else {
      return fields.fail("prompt", kPromptForms);
    }
  }
}

std::vector<TextPrompt> parse_prompts(Fields& fields) {
  std::vector<TextPrompt> prompts;
  const Json* value = fields.find("prompt");
  if (value == nullptr) {
    fields.fail("prompt", "prompt is missing");
  } else if (value->is_string()) {
    prompts.emplace_back(value->get<std::string>());
  } else if (value->is_array()) {
    parse_prompt_list(fields, *value, prompts);
  } else {
    fields.fail("prompt", kPromptForms);
  }
  return prompts;
}

// Fields of both routes that are neither sampling nor input.
void parse_common(Fields& fields, OpenAiRequest& request) {
  GenerateRequest& generate = request.generate;
  ReplyOptions& reply = request.reply;
  generate.model = fields.string("model").value_or("");
  reply.stream = generate.stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    Fields inner(*options, "stream_options.");
    reply.include_usage = inner.boolean("include_usage").value_or(false);
    reply.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false) && reply.include_usage;
    if (!inner.ok()) return fields.fail("stream_options", std::string(inner.status().message()));
  }
  reply.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  reply.n = generate.n = static_cast<int32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  generate.best_of = static_cast<int32_t>(fields.integer("best_of", 1, kMaxChoices).value_or(0));
  reply.sequences_per_prompt = std::max(generate.n, generate.best_of);
  generate.priority = static_cast<int32_t>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  generate.cache_salt = fields.string("cache_salt").value_or("");
  generate.add_special_tokens = fields.boolean("add_special_tokens");
  generate.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  generate.include_stop_str_in_output = fields.boolean("include_stop_str_in_output").value_or(false);
  generate.stop = parse_stop(fields);
  generate.certificate = parse_certificate(fields);
}

absl::StatusOr<OpenAiRequest> finish(Fields& fields, OpenAiRequest request) {
  if (!fields.ok()) return fields.status();
  return request;
}

}  // namespace

Conversation parse_conversation(Fields& fields) {
  Conversation conversation;
  if (const Json* messages = fields.array("messages")) {
    conversation.messages = *messages;
  } else {
    fields.fail("messages", "messages is missing; it must be an array of message objects");
  }
  if (const Json* kwargs = fields.object("chat_template_kwargs")) conversation.chat_template_kwargs = *kwargs;
  conversation.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  conversation.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  return conversation;
}

absl::StatusOr<OpenAiRequest> parse_chat_request(const Json& body) {
  if (!body.is_object()) return absl::InvalidArgumentError("the request body must be a JSON object");
  Fields fields(body);
  OpenAiRequest request;
  request.reply.chat = true;
  request.generate.input = parse_conversation(fields);
  refuse_unsupported(fields);
  parse_common(fields, request);
  request.generate.sampling = parse_sampling(fields);
  // max_completion_tokens is the newer name and wins.
  if (auto tokens = fields.integer("max_completion_tokens", 1, INT32_MAX)) {
    request.generate.sampling.max_tokens = static_cast<int32_t>(*tokens);
  }
  request.reply.scores = fields.boolean("logprobs").value_or(false);
  if (auto top = fields.integer("top_logprobs", 0, INT32_MAX)) {
    if (!request.reply.scores && *top > 0) fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
    request.reply.top = static_cast<int32_t>(*top);
  }
  if (request.reply.scores) request.generate.sampling.logprobs = request.reply.top;
  return finish(fields, std::move(request));
}

absl::StatusOr<OpenAiRequest> parse_completion_request(const Json& body) {
  if (!body.is_object()) return absl::InvalidArgumentError("the request body must be a JSON object");
  Fields fields(body);
  OpenAiRequest request;
  std::vector<TextPrompt> prompts = parse_prompts(fields);
  refuse_unsupported(fields);
  parse_common(fields, request);
  request.generate.sampling = parse_sampling(fields);
  request.generate.echo = fields.boolean("echo").value_or(false);
  if (auto logprobs = fields.integer("logprobs", 0, INT32_MAX)) {
    request.reply.scores = true;
    request.reply.top = request.generate.sampling.logprobs = static_cast<int32_t>(*logprobs);
  }
  if (prompts.size() * static_cast<size_t>(request.reply.sequences_per_prompt) > kMaxAllChoices) {
    fields.fail("prompt", fmt::format("prompts times n (or best_of) must be at most {}", kMaxAllChoices));
  }
  request.generate.input = std::move(prompts);
  return finish(fields, std::move(request));
}

}  // namespace assay::http
