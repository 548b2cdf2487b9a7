#include "kernels/cpu/cpu_ops.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/fold_meters.h"
#include "kernels/cpu/gate.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pool_attention.h"
#include "kernels/cpu/pool_write.h"
#include "kernels/cpu/sampling.h"

namespace assay {

void CpuOps::embed(ConstTensor table, const int32_t* ids, Tensor out) {
  cpu_embed(pool_, table, ids, out);
}

void CpuOps::rms_norm(ConstTensor x, ConstTensor weight, float eps, Tensor out) {
  cpu_rms_norm(pool_, x, weight, eps, out);
}

void CpuOps::linear(ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out) {
  cpu_linear(pool_, scratch_, x, parts, accumulate, out);
}

void CpuOps::rope_angles(const BatchView& batch, const RopeView& rope, float* cos_sin) {
  cpu_rope_angles(pool_, batch, rope, cos_sin);
}

void CpuOps::qk_norm_rope(const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                          const float* cos_sin, Tensor qkv) {
  cpu_qk_norm_rope(pool_, shape, q_norm, k_norm, eps, cos_sin, qkv);
}

void CpuOps::kv_write(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                      const PagedKvView& cache) {
  if (is_compressed(cache.format)) return cpu_pool_write(pool_, layer, batch, shape, qkv, cache);
  cpu_kv_write(pool_, layer, batch, shape, qkv, cache);
}

void CpuOps::attention(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                       const PagedKvView& cache, const kv::MeterView& meter, Tensor out) {
  if (is_compressed(cache.format)) {
    return cpu_pool_attention(pool_, scratch_, layer, batch, shape, qkv, cache, meter, out);
  }
  cpu_attention(pool_, scratch_, layer, batch, shape, qkv, cache, out);
}

void CpuOps::gate(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                  const PagedKvView& cache, const kv::MeterView& meter, const kv::GateView& gate, Tensor out) {
  cpu_gate(pool_, scratch_, layer, batch, shape, qkv, cache, meter, gate, out);
}

int64_t CpuOps::kv_restore(std::span<const PageToRestore> pages, const PagedKvView& cache) {
  return cpu_pool_restore(pool_, pages, cache);
}

void CpuOps::fold_meters(int32_t layer, const kv::MeterView& meter) {
  cpu_fold_meters(pool_, layer, meter);
}

void CpuOps::silu_mul(ConstTensor gate_up, Tensor out) {
  cpu_silu_mul(pool_, gate_up, out);
}

void CpuOps::gather_rows(ConstTensor x, const int32_t* rows, Tensor out) {
  cpu_gather_rows(pool_, x, rows, out);
}

void CpuOps::sample(ConstTensor logits, std::span<const SamplingRow> rows, int32_t* tokens) {
  pool_.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i, int) {
    const float* row = logits.f32() + i * logits.row_stride;
    tokens[i] = sample_row({row, static_cast<size_t>(logits.cols)}, rows[static_cast<size_t>(i)]);
  });
}

void CpuOps::logprobs(ConstTensor logits, std::span<LogprobsRow> rows) {
  pool_.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i, int) {
    const float* row = logits.f32() + i * logits.row_stride;
    fill_logprobs({row, static_cast<size_t>(logits.cols)}, rows[static_cast<size_t>(i)]);
  });
}

}  // namespace assay
