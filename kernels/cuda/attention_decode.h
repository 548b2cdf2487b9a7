// Decode attention: the first `num_decodes` sequences of a batch, one row each.
#pragma once

#include <cstddef>

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

// What both parts of attention are called with.
struct AttentionCall {
  int32_t layer;
  const BatchView& batch;
  const AttentionShape& shape;
  ConstTensor qkv;
  const PagedKvView& cache;
  const kv::MeterView& meter;
  Tensor out;
};

// Scratch that launch_decode needs.
size_t decode_scratch_bytes(const CudaContext& context, const AttentionCall& call);

void launch_decode(CudaContext& context, const AttentionCall& call, void* scratch);

}  // namespace assay
