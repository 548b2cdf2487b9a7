// Prompts with facts hidden in prose, made from word lists of our own, so that any model can be asked and no book is
// needed.
//
// Threads: pure functions; the same seed gives the same prompt everywhere. Errors: InvalidArgument where no prompt
// fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace assay {

struct NeedlePrompt {
  std::string text;    // prose with the facts, then the question
  std::string answer;  // what a right reply contains
};

// The longest prompt of at most `most_tokens` tokens by `count_tokens` (of the finished prompt). The fact that is asked
// for stands at `depth` of the prose (0 = first sentence, 1 = last), others like it are spread all over.
absl::StatusOr<NeedlePrompt> make_needle_prompt(uint64_t seed, int64_t most_tokens, double depth,
                                                const std::function<int64_t(const std::string&)>& count_tokens);

}  // namespace assay
