#include "engine/core/request_check.h"

#include <algorithm>
#include <string>

#include "fmt/format.h"

namespace assay {
namespace {

constexpr int32_t kMaxSequences = 128;
constexpr float kMaxBias = 100.0f;
// Beyond these a penalised logit may overflow, and nothing can be sampled.
constexpr float kMinRepetitionPenalty = 0.01f;
constexpr float kMaxRepetitionPenalty = 100.0f;

template <typename... Args>
absl::Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

// NaN fails every comparison, so it is refused as well.
absl::Status check_between(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return invalid("{} must be between {} and {}, got {}", field, low, high, value);
}

absl::Status check_above_zero(const char* field, float value, float high) {
  if (value > 0.0f && value <= high) return absl::OkStatus();
  return invalid("{} must be above 0 and at most {}, got {}", field, high, value);
}

absl::Status check_token(const char* field, int32_t token, int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return invalid("{} has the token id {}, outside the vocabulary: ids are 0 to {}", field, token, vocab_size - 1);
}

absl::Status check_prompt(const Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return invalid("prompt must have at least one token");
  for (const int32_t token : request.prompt) {
    if (const absl::Status status = check_token("prompt", token, limits.vocab_size); !status.ok()) return status;
  }
  const int64_t num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t num_needed = num_prompt + (request.sampling.max_tokens == 0 ? 0 : 1);
  if (num_needed > limits.max_model_len) {
    return invalid("prompt has {} tokens, too long for the maximum context length of {} tokens (max_model_len){}",
                   num_prompt, limits.max_model_len,
                   num_needed > num_prompt ? ", which must leave room for one generated token" : "");
  }
  if (num_needed > limits.max_kv_tokens) {
    return invalid("prompt has {} tokens, more than the whole KV cache can hold ({} tokens): it can never run here",
                   num_prompt, limits.max_kv_tokens);
  }
  return absl::OkStatus();
}

absl::Status check_lengths(const SamplingParams& sampling) {
  if (sampling.max_tokens < 0) return invalid("max_tokens must be at least 1, got {}", sampling.max_tokens);
  if (sampling.max_tokens == 0 && sampling.prompt_logprobs < 0) {
    return invalid("max_tokens must be at least 1; 0 is possible only together with prompt_logprobs");
  }
  if (sampling.min_tokens < 0) return invalid("min_tokens must not be negative, got {}", sampling.min_tokens);
  if (sampling.min_tokens > sampling.max_tokens) {
    return invalid("min_tokens must not exceed max_tokens, got {} and {}", sampling.min_tokens, sampling.max_tokens);
  }
  return absl::OkStatus();
}

absl::Status check_numbers(const SamplingParams& sampling) {
  absl::Status status;
  status.Update(check_between("temperature", sampling.temperature, 0.0f, 2.0f));
  status.Update(check_above_zero("top_p", sampling.top_p, 1.0f));
  status.Update(check_between("min_p", sampling.min_p, 0.0f, 1.0f));
  status.Update(check_between("repetition_penalty", sampling.repetition_penalty, kMinRepetitionPenalty,
                              kMaxRepetitionPenalty));
  status.Update(check_between("presence_penalty", sampling.presence_penalty, -2.0f, 2.0f));
  status.Update(check_between("frequency_penalty", sampling.frequency_penalty, -2.0f, 2.0f));
  if (sampling.top_k < -1)
    status.Update(invalid("top_k must be at least 1, or 0 or -1 to turn it off, got {}", sampling.top_k));
  return status;
}

absl::Status check_token_lists(const SamplingParams& sampling, int32_t vocab_size) {
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (const absl::Status status = check_token("logit_bias", token, vocab_size); !status.ok()) return status;
    if (const absl::Status status = check_between("logit_bias", bias, -kMaxBias, kMaxBias); !status.ok()) return status;
  }
  for (const int32_t token : sampling.stop_token_ids) {
    if (const absl::Status status = check_token("stop_token_ids", token, vocab_size); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Before min_tokens tokens all ids that end a sequence are forbidden: one other must be left.
absl::Status check_some_token_allowed(const SamplingParams& sampling, const RequestLimits& limits) {
  if (sampling.min_tokens == 0) return absl::OkStatus();
  std::vector<int32_t> forbidden = sampling.stop_token_ids;
  if (!sampling.ignore_eos) {
    forbidden.insert(forbidden.end(), limits.eos_token_ids.begin(), limits.eos_token_ids.end());
  }
  if (forbidden.size() < static_cast<size_t>(limits.vocab_size)) return absl::OkStatus();
  std::erase_if(forbidden, [&](int32_t id) { return id < 0 || id >= limits.vocab_size; });
  std::sort(forbidden.begin(), forbidden.end());
  const auto num_forbidden = std::unique(forbidden.begin(), forbidden.end()) - forbidden.begin();
  if (num_forbidden < limits.vocab_size) return absl::OkStatus();
  return invalid("stop_token_ids must leave a token to sample: with min_tokens {} the whole vocabulary of {} is forbidden",
                 sampling.min_tokens, limits.vocab_size);
}

absl::Status check_logprobs(const char* field, int32_t value, int32_t max_logprobs) {
  if (value >= -1 && value <= max_logprobs) return absl::OkStatus();
  return invalid("{} must be between 0 and {} (max_logprobs), got {}", field, max_logprobs, value);
}

absl::Status check_sequences(const Request& request, const RequestLimits& limits) {
  const int32_t most = std::min(kMaxSequences, limits.max_num_queued_reqs);
  if (request.num_sequences >= 1 && request.num_sequences <= most) return absl::OkStatus();
  return invalid("n must be between 1 and {}, got {}", most, request.num_sequences);
}

}  // namespace

absl::Status check_and_resolve(Request& request, const RequestLimits& limits,
                               std::chrono::steady_clock::time_point now) {
  SamplingParams& sampling = request.sampling;
  absl::Status status;
  status.Update(check_prompt(request, limits));
  status.Update(check_lengths(sampling));
  status.Update(check_numbers(sampling));
  status.Update(check_token_lists(sampling, limits.vocab_size));
  status.Update(check_some_token_allowed(sampling, limits));
  status.Update(check_logprobs("logprobs", sampling.logprobs, limits.max_logprobs));
  status.Update(check_logprobs("prompt_logprobs", sampling.prompt_logprobs, limits.max_logprobs));
  status.Update(check_sequences(request, limits));
  if (request.deadline && *request.deadline <= now) {
    status.Update(absl::DeadlineExceededError("the deadline had passed before the request was submitted"));
  }
  if (!status.ok()) return status;

  sampling.top_k = std::max(sampling.top_k, 0);
  const int64_t context = std::min<int64_t>(limits.max_model_len, limits.max_kv_tokens);
  const int64_t tokens_left = context - static_cast<int64_t>(request.prompt.size());
  sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(sampling.max_tokens, tokens_left));
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
  return absl::OkStatus();
}

}  // namespace assay
