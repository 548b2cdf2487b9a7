// Choosing a token from each row of logits, and scoring one, on the device.
//
// The rules and their order are those of the CPU twin (kernels/cpu/sampling.h), and so is the random number. Weights
// are float exponentials, turned into integers of 2^-44 of the largest and added up as such: no order of summation, so
// a row's choice depends on the row, its rules and (seed, draw) alone. A choice can differ from the CPU's where the
// random number falls within rounding of a boundary. Both functions wait for their answers.
#pragma once

#include <span>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/row_scratch.h"
#include "kernels/ops.h"

namespace assay {

// Contract: Ops::sample.
void cuda_sample(CudaContext& context, RowScratch& scratch, ConstTensor logits, std::span<const SamplingRow> rows,
                 int32_t* tokens);

// Contract: Ops::logprobs.
void cuda_logprobs(CudaContext& context, RowScratch& scratch, ConstTensor logits, std::span<LogprobsRow> rows);

}  // namespace assay
