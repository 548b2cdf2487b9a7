#include "server/http/openai_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/text/utf8.h"

namespace assay::http {
namespace {

constexpr float kLowestLogprob = -9999.0f;  // JSON has no infinity

float finite(float logprob) { return std::max(logprob, kLowestLogprob); }

// As text where it is text; a part of a character as "bytes:\xNN...", so that different tokens stay different.
std::string spell(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string spelled = "bytes:";
  for (const unsigned char byte : bytes) spelled += fmt::format("\\x{:02x}", byte);
  return spelled;
}

Json byte_list(const std::string& bytes) {
  Json list = Json::array();
  for (const unsigned char byte : bytes) list.push_back(byte);
  return list;
}

Json chat_token(const std::string& bytes, float logprob) {
  return {{"token", spell(bytes)}, {"logprob", finite(logprob)}, {"bytes", byte_list(bytes)}};
}

// The chosen token is always there, besides the `top` most probable.
Json top_dictionary(const TokenScore& score, int32_t top, const Tokenizer& tokenizer) {
  if (!score.logprob) return nullptr;
  Json dictionary = Json::object();
  for (size_t i = 0; i < score.top.size() && i < static_cast<size_t>(top); ++i) {
    const std::string token = spell(tokenizer.token_bytes(score.top[i].first));
    if (!dictionary.contains(token)) dictionary[token] = finite(score.top[i].second);
  }
  const std::string chosen = spell(score.bytes);
  if (!dictionary.contains(chosen)) dictionary[chosen] = finite(*score.logprob);
  return dictionary;
}

Json finish_json(const std::optional<FinishReason>& finish) {
  if (!finish) return nullptr;
  return *finish == FinishReason::kLength ? "length" : "stop";
}

void add_end(const TextEvent& event, Json& choice) {
  choice["finish_reason"] = finish_json(event.finish);
  if (!event.finish) return;
  if (const auto* id = std::get_if<int32_t>(&event.stop_reason)) {
    choice["stop_reason"] = *id;
  } else if (const auto* text = std::get_if<std::string>(&event.stop_reason)) {
    choice["stop_reason"] = *text;
  } else {
    choice["stop_reason"] = nullptr;
  }
}

Json logprobs_json(const TextEvent& event, const ReplyOptions& options, const Tokenizer& tokenizer) {
  if (!options.scores) return nullptr;
  return options.chat ? chat_logprobs(event.scores, options.top, tokenizer)
                      : completion_logprobs(event, options.top, tokenizer);
}

// Where nothing was metered there is no worst cell: layer, head and step are null.
Json worst_json(const CertificateWorst& worst, const char* bound_name) {
  const auto or_null = [](int32_t value) { return value < 0 ? Json(nullptr) : Json(value); };
  return {{bound_name, worst.bound}, {"layer", or_null(worst.layer)}, {"head", or_null(worst.head)}, {"step", or_null(worst.step)}};
}

}  // namespace

Json usage_json(const TextUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.total_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json certificate_json(const CertificateReport& report) {
  const auto cells = [](const CertificateCells& counts) {
    return Json{{"metered", counts.metered},         {"certified", counts.certified}, {"conditional", counts.conditional},
                {"risk_ranked", counts.risk_ranked}, {"saturated", counts.saturated}, {"overflow", counts.overflow},
                {"exact", counts.exact}};
  };
  Json json = {{"pool", report.pool},   {"radius", report.radius}, {"bound", report.bound}, {"guarantee", report.guarantee},
               {"tau", report.tau},     {"tau_v", report.tau_v},   {"delta", report.delta}, {"policy", report.policy},
               {"certified", report.certified}};
  json["cells"] = {{"decode", cells(report.decode)}, {"prefill", cells(report.prefill)}};
  json["cells"]["prefill"]["stride"] = report.prefill_stride;
  json["worst"] = worst_json(report.worst, "tv");
  json["worst"]["raw"] = report.worst.raw;
  json["worst_value"] = worst_json(report.worst_value, "bound");
  const CertificateGate& gate = report.gate;
  json["gate"] = {{"refined", gate.refined}, {"paged", gate.paged}, {"whole_head", gate.whole_head},
                  {"whole_layer", gate.whole_layer}};
  json["pages_in"] = gate.pages_in;
  json["bytes_in"] = gate.bytes_in;
  json["pages_not_backed"] = gate.pages_not_backed;
  json["repair_cache_hits"] = gate.repair_cache_hits;
  json["backing"] = report.backing;
  return json;
}

Json chat_logprobs(const std::vector<TokenScore>& scores, int32_t top, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenScore& score : scores) {
    Json token = chat_token(score.bytes, score.logprob.value_or(kLowestLogprob));
    token["top_logprobs"] = Json::array();
    for (size_t i = 0; i < score.top.size() && i < static_cast<size_t>(top); ++i) {
      token["top_logprobs"].push_back(chat_token(tokenizer.token_bytes(score.top[i].first), score.top[i].second));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const TextEvent& event, int32_t top, const Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  const auto add = [&](const TokenScore& score) {
    tokens.push_back(spell(score.bytes));
    logprobs.push_back(score.logprob ? Json(finite(*score.logprob)) : Json(nullptr));
    tops.push_back(top_dictionary(score, top, tokenizer));
    offsets.push_back(score.text_offset);
  };
  if (event.prompt_scores != nullptr) std::for_each(event.prompt_scores->begin(), event.prompt_scores->end(), add);
  std::for_each(event.scores.begin(), event.scores.end(), add);
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(tokens)},
          {"top_logprobs", std::move(tops)}};
}

Json whole_choice(const TextEvent& event, const ReplyOptions& options, const Tokenizer& tokenizer) {
  Json choice = {{"index", event.choice}};
  if (options.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", event.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = event.text;
  }
  choice["logprobs"] = logprobs_json(event, options, tokenizer);
  add_end(event, choice);
  if (options.return_token_ids) choice["token_ids"] = event.token_ids;
  return choice;
}

Json chunk_choice(const TextEvent& event, const ReplyOptions& options, bool first, const Tokenizer& tokenizer) {
  Json choice = {{"index", event.choice}};
  if (options.chat) {
    Json delta = Json::object();
    if (first) delta["role"] = "assistant";
    if (first || !event.text.empty()) delta["content"] = event.text;
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = event.text;
  }
  const bool scored = options.scores && (!event.scores.empty() || event.prompt_scores != nullptr);
  choice["logprobs"] = scored ? logprobs_json(event, options, tokenizer) : Json(nullptr);
  add_end(event, choice);
  if (options.return_token_ids) choice["token_ids"] = event.token_ids;
  return choice;
}

Json reply_frame(const ReplyOptions& options) {
  const char* object = !options.chat ? "text_completion" : options.stream ? "chat.completion.chunk" : "chat.completion";
  return {{"id", options.id}, {"object", object}, {"created", options.created}, {"model", options.model}};
}

std::string server_sent_event(const Json& data) { return "data: " + to_text(data) + "\n\n"; }

}  // namespace assay::http
