#include "engine/core/stop_rules.h"

#include <algorithm>

namespace assay {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

bool is_stop_token(int32_t token, const SamplingParams& sampling, const std::vector<int32_t>& eos_token_ids) {
  return (!sampling.ignore_eos && contains(eos_token_ids, token)) || contains(sampling.stop_token_ids, token);
}

std::optional<StopDecision> stop_after(int32_t token, int32_t num_generated, const SamplingParams& sampling,
                                       const std::vector<int32_t>& eos_token_ids) {
  if (!forbids_stop(sampling, num_generated - 1) && is_stop_token(token, sampling, eos_token_ids)) {
    return StopDecision{FinishReason::kStop, token};
  }
  if (num_generated >= sampling.max_tokens) return StopDecision{FinishReason::kLength, std::nullopt};
  return std::nullopt;
}

}  // namespace assay
