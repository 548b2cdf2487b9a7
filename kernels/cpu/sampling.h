// Choosing a token from one row of logits, and scoring one. Float and double arithmetic on the host, one row at a time,
// so a result depends on its row, its rules, and (seed, draw) alone.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace assay {

// Order: bias, forbidden ids, penalties; temperature 0: the largest; else temperature, min_p, top_k, top_p, draw.
// Ties go to the lowest id. kNoToken: a logit is not finite or nothing is allowed.
int32_t sample_row(std::span<const float> logits, const SamplingRow& rules);

void fill_logprobs(std::span<const float> logits, LogprobsRow& row);

// Uniform in [0, 1): Philox 4x32-10 with key `seed` and counter `draw`.
double uniform_random(uint64_t seed, uint64_t draw);

}  // namespace assay
