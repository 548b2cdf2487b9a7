// Any bytes as the body of a chat, completion or tokenize request: refused with words, or a request whose conversation renders or
// says why not. What is parsed is written as JSON that parses again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "server/http/json_text.h"
#include "server/http/openai_request.h"
#include "server/service/prompt.h"
#include "server/service/status.h"
#include "server/text/tokenizer_json.h"

namespace {

namespace http = assay::http;

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}";

void check(bool holds) {
  if (!holds) std::abort();
}

const assay::Tokenizer& tokenizer() {
  static const auto loaded = assay::parse_tokenizer_json(
      R"({"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
          "model":{"type":"BPE","vocab":{"a":0},"merges":[]}})", {});
  check(loaded.ok());
  return **loaded;
}

const assay::ChatTemplate& chat_template() {
  static const auto parsed = assay::ChatTemplate::parse(kTemplate);
  check(parsed.ok());
  return **parsed;
}

void check_error(const absl::Status& status) {
  const assay::ErrorView view = assay::describe_error(status);
  check(view.http_status >= 400 && view.http_status < 500 && !view.message.empty());
}

void check_limits(const assay::GenerateRequest& request) {
  check(request.n >= 1 && request.n <= 128 && request.best_of >= 0 && request.best_of <= 128);
  check(request.sampling.logprobs >= -1 && request.sampling.min_tokens >= 0 && request.sampling.max_tokens.value_or(0) >= 0);
  for (const auto& [id, bias] : request.sampling.logit_bias) check(bias >= -100.0f && bias <= 100.0f);
  for (const std::string& stop : request.stop) check(!stop.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = http::parse_json({reinterpret_cast<const char*>(data), size});
  if (!body.ok()) {
    check_error(body.status());
    return 0;
  }
  const std::string text = http::to_text(*body);
  const auto again = http::parse_json(text);
  check(again.ok() && http::to_text(*again) == text);

  const auto completion = http::parse_completion_request(*body);
  if (completion.ok()) {
    check_limits(completion->generate);
  } else {
    check_error(completion.status());
  }
  const auto chat = http::parse_chat_request(*body);
  if (!chat.ok()) {
    check_error(chat.status());
    return 0;
  }
  check_limits(chat->generate);
  const auto& conversation = std::get<assay::Conversation>(chat->generate.input);
  const auto prompt = assay::render_conversation(conversation, chat_template(), tokenizer());
  if (!prompt.ok()) check_error(prompt.status());
  return 0;
}
