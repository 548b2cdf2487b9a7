// `assay eval needle`: does the model still find a fact in a long prompt when its cache is compressed?
//
// Threads: one caller. Errors: those of the engine and of making the prompts.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/config/serve_config.h"
#include "server/eval/eval_types.h"
#include "server/text/tokenizer.h"

namespace assay {

struct NeedleOptions {
  std::vector<int64_t> contexts;  // tokens of the prompt
  int64_t prompts = 0;            // of each context
  int64_t max_tokens = 0;         // of an answer
  uint64_t seed = 0;
  int64_t chunk = 0;  // prefill in chunks of so many tokens; 0 = whole prompts at once
};

// Greedy answers to the same prompts with each pool of `specs`, in their order.
absl::StatusOr<std::vector<NeedleResult>> run_needle(const ServeConfig& config, const std::vector<std::string>& specs,
                                                     const Tokenizer& tokenizer, const NeedleOptions& options,
                                                     const Progress& progress);

}  // namespace assay
