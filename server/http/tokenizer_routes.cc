#include "server/http/error_reply.h"
#include "server/http/openai_request.h"
#include "server/http/routes.h"
#include "server/service/fields.h"

namespace assay::http {
namespace {

struct Call {
  std::shared_ptr<TextService> service;
  Json body;
};

absl::StatusOr<Call> begin(const Lifecycle& lifecycle, const HttpRequest& http) {
  absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle.alive();
  if (!service.ok()) return service.status();
  absl::StatusOr<Json> body = parse_json(http.body);
  if (!body.ok()) return body.status();
  if (!body->is_object()) return absl::InvalidArgumentError("the request body must be a JSON object");
  return Call{std::move(*service), std::move(*body)};
}

absl::StatusOr<Json> tokenize(const Lifecycle& lifecycle, const HttpRequest& http) {
  absl::StatusOr<Call> call = begin(lifecycle, http);
  if (!call.ok()) return call.status();
  Fields fields(call->body);
  TokenizeRequest request;
  if (fields.find("messages") != nullptr) {
    Conversation conversation = parse_conversation(fields);
    if (const Json* tools = fields.array("tools")) conversation.tools = *tools;
    request.input = std::move(conversation);
  } else if (std::optional<std::string> prompt = fields.string("prompt")) {
    request.input = std::move(*prompt);
  } else {
    fields.fail("prompt", "prompt (a string) or messages is missing");
  }
  request.add_special_tokens = fields.boolean("add_special_tokens");
  const bool return_prompt = fields.boolean("return_prompt").value_or(false);
  const std::string model = fields.string("model").value_or("");
  if (!fields.ok()) return fields.status();
  if (absl::Status status = call->service->check_model(model); !status.ok()) return status;
  absl::StatusOr<TokenizeResult> result = call->service->tokenize(request);
  if (!result.ok()) return result.status();
  Json reply = {{"count", result->tokens.size()},
                {"max_model_len", call->service->engine().config().max_model_len},
                {"tokens", result->tokens}};
  if (return_prompt) reply["prompt"] = result->prompt;
  return reply;
}

absl::StatusOr<Json> detokenize(const Lifecycle& lifecycle, const HttpRequest& http) {
  absl::StatusOr<Call> call = begin(lifecycle, http);
  if (!call.ok()) return call.status();
  Fields fields(call->body);
  if (fields.find("tokens") == nullptr) fields.fail("tokens", "tokens is missing; it must be an array of token ids");
  const std::vector<int32_t> tokens = fields.token_ids("tokens");
  const bool skip = fields.boolean("skip_special_tokens").value_or(false);
  const std::string model = fields.string("model").value_or("");
  if (!fields.ok()) return fields.status();
  if (absl::Status status = call->service->check_model(model); !status.ok()) return status;
  absl::StatusOr<std::string> text = call->service->detokenize(tokens, skip);
  if (!text.ok()) return text.status();
  return Json{{"prompt", *text}};
}

absl::StatusOr<Json> tokenizer_info(const Lifecycle& lifecycle, const HttpRequest&) {
  absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle.alive();
  if (!service.ok()) return service.status();
  const Tokenizer& tokenizer = (*service)->tokenizer();
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return Json{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"vocab_size", tokenizer.vocab_size()},
              {"model_max_length", (*service)->engine().config().max_model_len},
              {"bos_token", or_null(tokenizer.bos_token())},
              {"eos_token", or_null(tokenizer.eos_token())},
              {"pad_token", or_null(tokenizer.pad_token())},
              {"unk_token", or_null(tokenizer.unk_token())},
              {"chat_template", or_null((*service)->chat_template_source())}};
}

}  // namespace

std::vector<Route> tokenizer_routes(const Lifecycle& lifecycle) {
  using Function = absl::StatusOr<Json> (*)(const Lifecycle&, const HttpRequest&);
  std::vector<Route> routes;
  const auto add = [&](const char* method, const char* path, Function function) {
    Route route{method, path};
    route.handler = [&lifecycle, function](const HttpRequest& request) {
      absl::StatusOr<Json> reply = function(lifecycle, request);
      return reply.ok() ? json_reply(200, to_text(*reply)) : error_reply(reply.status());
    };
    routes.push_back(std::move(route));
  };
  add("POST", "/tokenize", tokenize);
  add("POST", "/detokenize", detokenize);
  add("GET", "/tokenizer_info", tokenizer_info);
  return routes;
}

}  // namespace assay::http
