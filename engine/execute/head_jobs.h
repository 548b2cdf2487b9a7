// Which rows of a step need logits, and for what. Rows to sample come first, then prompt positions to score.
//
// Threads: pure functions over a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/step.h"
#include "kernels/ops.h"

namespace assay {

struct HeadJob {
  int32_t slice = 0;
  int32_t row = 0;       // of the flattened batch
  int32_t position = 0;  // of its token
};

struct HeadJobs {
  std::vector<HeadJob> sample;
  std::vector<HeadJob> score;  // position p scores the prompt token at p + 1
  std::vector<int32_t> rows() const;
};

HeadJobs make_head_jobs(const StepPlan& plan);

// The sampling rules of a slice for the kernels. `forbidden` is storage for the ids that must not come; it must outlive
// the result. `eos_token_ids` of the model.
SamplingRow make_sampling_row(const SequenceSlice& slice, const std::vector<int32_t>& eos_token_ids, int32_t vocab_size,
                              std::vector<int32_t>& forbidden);

}  // namespace assay
