// What a client asks for, in text terms and free of any protocol: HTTP and gRPC parse into these, TextService runs them.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/api/certificate.h"
#include "engine/api/request.h"

namespace assay {

// A conversation to be rendered by the chat template. `messages` is a JSON array of message objects as clients send them.
struct Conversation {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;                 // null or array
  nlohmann::ordered_json chat_template_kwargs;  // null or object
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

using TextPrompt = std::variant<std::string, std::vector<int32_t>>;

// Sampling fields that a client left out take the model's defaults (generation_config.json), then OpenAI's.
struct SamplingFields {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<int32_t> max_tokens;
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  int32_t logprobs = -1;  // -1 none, 0 the chosen token, k alternatives as well
};

struct GenerateRequest {
  std::string id;     // request id, for logs
  std::string model;  // empty = the served one
  std::variant<std::vector<TextPrompt>, Conversation> input;
  std::optional<bool> add_special_tokens;  // default: true for prompts, false for conversations

  SamplingFields sampling;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool echo = false;  // prompts only: the text (and scores, with logprobs) of the prompt comes first
  int32_t n = 1;
  int32_t best_of = 0;  // 0 = n
  int32_t priority = 0;
  std::string cache_salt;
  bool stream = false;  // for metrics and the check of best_of
  std::optional<CertificateOptions> certificate;
};

}  // namespace assay
