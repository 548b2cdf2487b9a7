// Products of few rows: the time is that of reading the weights once.
#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

// So many rows at most.
constexpr int64_t kGemvMaxRows = 16;

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
void launch_gemv(CudaContext& context, const LinearCall& call);

// The same for any shape, stride and dtype: slow, the last resort.
void launch_any_product(CudaContext& context, const LinearCall& call);

}  // namespace assay
