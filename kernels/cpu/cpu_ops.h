// The CPU twin of Ops: float32 activations and accumulation, Highway vectors, an own thread pool.
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace assay {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(int num_threads) : pool_(num_threads), scratch_(num_threads) {}

  DType activation_dtype() const override { return DType::kF32; }
  void embed(ConstTensor table, const int32_t* ids, Tensor out) override;
  void rms_norm(ConstTensor x, ConstTensor weight, float eps, Tensor out) override;
  void linear(ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out) override;
  void rope_angles(const BatchView& batch, const RopeView& rope, float* cos_sin) override;
  void qk_norm_rope(const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                    const float* cos_sin, Tensor qkv) override;
  void kv_write(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                const PagedKvView& cache) override;
  void attention(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                 const PagedKvView& cache, const kv::MeterView& meter, Tensor out) override;
  bool has_gate() const override { return true; }
  void gate(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
            const PagedKvView& cache, const kv::MeterView& meter, const kv::GateView& gate, Tensor out) override;
  int64_t kv_restore(std::span<const PageToRestore> pages, const PagedKvView& cache) override;
  void fold_meters(int32_t layer, const kv::MeterView& meter) override;
  void silu_mul(ConstTensor gate_up, Tensor out) override;
  void gather_rows(ConstTensor x, const int32_t* rows, Tensor out) override;
  void sample(ConstTensor logits, std::span<const SamplingRow> rows, int32_t* tokens) override;
  void logprobs(ConstTensor logits, std::span<LogprobsRow> rows) override;

 private:
  ThreadPool pool_;
  Scratch scratch_;
};

}  // namespace assay
