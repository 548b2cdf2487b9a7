// The rules a request must meet, in one place; docs and server rely on the messages naming the field.
//
// Threads: pure functions. Errors: InvalidArgument (DeadlineExceeded for a deadline that has passed).
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/request.h"

namespace assay {

struct RequestLimits {
  int32_t vocab_size = 0;
  int32_t max_model_len = 0;  // tokens, prompt + generated
  int64_t max_kv_tokens = 0;  // tokens the whole KV pool can hold
  int32_t max_logprobs = 0;
  int32_t max_num_queued_reqs = 0;
  std::vector<int32_t> eos_token_ids;  // of the model
};

// Checks every field, then resolves what is left open: top_k -1 becomes 0, max_tokens is clamped to what the context
// leaves, min_tokens to max_tokens. A request that passes can always be computed when it is alone in the engine.
absl::Status check_and_resolve(Request& request, const RequestLimits& limits,
                               std::chrono::steady_clock::time_point now);

}  // namespace assay
