// Operations on rows, one after another on the context's stream. Contracts: kernels/ops.h.
#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

constexpr int kMaxRotaryPairs = 512;

void launch_embed(CudaContext& context, ConstTensor table, const int32_t* ids, Tensor out);
void launch_gather_rows(CudaContext& context, ConstTensor x, const int32_t* rows, Tensor out);
void launch_rms_norm(CudaContext& context, ConstTensor x, ConstTensor weight, float eps, Tensor out);
void launch_silu_mul(CudaContext& context, ConstTensor gate_up, Tensor out);
void launch_rope_angles(CudaContext& context, const BatchView& batch, const RopeView& rope, float* cos_sin);
void launch_qk_norm_rope(CudaContext& context, const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm,
                         float eps, const float* cos_sin, Tensor qkv);

}  // namespace assay
