// Operations on single rows: embedding, RMS norm, rotary embedding, SiLU, cache writes. Each row is one task's work, so
// its arithmetic order is fixed.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace assay {

void cpu_embed(ThreadPool& pool, ConstTensor table, const int32_t* ids, Tensor out);
void cpu_gather_rows(ThreadPool& pool, ConstTensor x, const int32_t* rows, Tensor out);
void cpu_rms_norm(ThreadPool& pool, ConstTensor x, ConstTensor weight, float eps, Tensor out);
void cpu_silu_mul(ThreadPool& pool, ConstTensor gate_up, Tensor out);
void cpu_rope_angles(ThreadPool& pool, const BatchView& batch, const RopeView& rope, float* cos_sin);
void cpu_qk_norm_rope(ThreadPool& pool, const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                      const float* cos_sin, Tensor qkv);
void cpu_kv_write(ThreadPool& pool, int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                  const PagedKvView& cache);

}  // namespace assay
