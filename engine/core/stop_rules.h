// When a sequence ends by what was generated. Pure functions.
//
// Threads: any. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/events.h"
#include "engine/api/request.h"

namespace assay {

struct StopDecision {
  FinishReason reason = FinishReason::kStop;
  std::optional<int32_t> stop_token;  // the id that ended it, when one did
};

// Does `token` end a sequence by itself? The model's end-of-sequence ids do unless ignore_eos; stop_token_ids always
// do.
bool is_stop_token(int32_t token, const SamplingParams& sampling, const std::vector<int32_t>& eos_token_ids);

// Stop ids count only once min_tokens tokens precede them.
inline bool forbids_stop(const SamplingParams& sampling, int32_t num_generated) {
  return num_generated < sampling.min_tokens;
}

// After token number `num_generated` (from 1) was `token`. max_tokens is already clamped to what the context leaves, so
// it is also the rule for a full context. A stop id wins over the length.
std::optional<StopDecision> stop_after(int32_t token, int32_t num_generated, const SamplingParams& sampling,
                                       const std::vector<int32_t>& eos_token_ids);

}  // namespace assay
