// What a client may ask of the engine: token ids in, sampling rules, limits. Plain values, no behaviour.
//
// Threads: values; build one on any thread and move it into Engine::submit.
// Errors: none here. Engine::submit checks every field and names the one that is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/certificate.h"

namespace assay {

// Sampling rules of one request. Defaults are those of the OpenAI API; names are vLLM's where OpenAI has none.
struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0 = off
  float min_p = 0.0f;        // [0, 1], relative to the largest probability
  std::optional<uint64_t> seed;

  float repetition_penalty = 1.0f;  // over prompt and output, [0.01, 100]
  float presence_penalty = 0.0f;    // over output, [-2, 2]
  float frequency_penalty = 0.0f;   // over output, [-2, 2]
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token id, added logit)

  int32_t max_tokens = 16;  // generated tokens at most; 0 only together with prompt_logprobs
  int32_t min_tokens = 0;   // end-of-sequence and stop ids cannot be sampled before this many tokens
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;  // end the sequence; besides the model's own end-of-sequence ids

  // Log probabilities of the raw distribution (log softmax of the logits, before temperature, penalties, bias).
  // -1 = none, 0 = the chosen token only, k = the k most probable as well.
  int32_t logprobs = -1;
  int32_t prompt_logprobs = -1;  // the same for each prompt position but the first
};

struct Request {
  std::string id;               // for logs and reports; need not be unique
  std::vector<int32_t> prompt;  // token ids, at least one
  SamplingParams sampling;
  int32_t num_sequences = 1;  // `n`: independent continuations of one prompt; each takes a slot of the queue
  int32_t priority = 0;       // lower runs first; ties by arrival
  CertificateOptions certificate;
  std::string cache_salt;     // requests share prefix pages only within one salt
  std::optional<std::chrono::steady_clock::time_point> deadline;  // then it ends with DEADLINE_EXCEEDED
};

}  // namespace assay
