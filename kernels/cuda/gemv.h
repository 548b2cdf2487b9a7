// Products of few rows: the time is that of reading the weights once.
#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

// So many rows at most.
constexpr int64_t kGemvMaxRows = 8;

struct LinearCall {
  ConstTensor x;       // [m, k]
  ConstTensor weight;  // [n, k]
  ConstTensor bias;    // [1, n] or absent
  Tensor out;          // [m, n]
  bool accumulate = false;
};

// Whether launch_gemv can do it: x and weight of the same 16-bit dtype in whole aligned packs, at most kGemvMaxRows.
bool gemv_fits(const LinearCall& call);

// out = x weight^T + bias (+ out). The sum of an element goes in a fixed order, whatever else is computed with it.
// `blocks_per_multiprocessor` 2 or 4 (0: by the size of the work): fewer blocks that read ahead, or more that do not.
void launch_gemv(CudaContext& context, const LinearCall& call, int blocks_per_multiprocessor = 0);

// out = silu(x gate^T) * (x up^T), biases included, without the products in between. `gate.out` is out.
bool gated_gemv_fits(const LinearCall& gate, const LinearPart& up);
void launch_gated_gemv(CudaContext& context, const LinearCall& gate, const LinearPart& up,
                       int blocks_per_multiprocessor = 0);

// launch_gemv for any shape, stride and dtype: slow, the last resort.
void launch_any_product(CudaContext& context, const LinearCall& call);

}  // namespace assay
