// The CUDA twin of Ops: activations in bfloat16 or float16, float32 accumulation, one stream, everything asynchronous
// but `sample` and `logprobs`, which answer in host memory and wait for it.
//
// A row's numbers may depend in their last bits on how many rows are computed with it: the matrix products choose
// their tiling by that number (ADR 27). Errors: a failed launch is kept and told by Device::synchronize.
#pragma once

#include <memory>

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

class Gemm;
class RowScratch;
class StepGraphs;

class CudaOps final : public Ops {
 public:
  // `context` outlives the Ops. `activations` is kBF16 or kF16.
  CudaOps(CudaContext& context, DType activations);
  ~CudaOps() override;

  DType activation_dtype() const override { return activations_; }
  std::string warning() const override;
  std::string unsupported(const AttentionShape& shape, const PagedKvView& cache) const override;
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
  void fold_meters(int32_t layer, const kv::MeterView& meter) override;
  void silu_mul(ConstTensor gate_up, Tensor out) override;
  void gated_linear(ConstTensor x, std::span<const LinearPart> parts, Tensor gate_up, Tensor out) override;
  void gather_rows(ConstTensor x, const int32_t* rows, Tensor out) override;
  void sample(ConstTensor logits, std::span<const SamplingRow> rows, int32_t* tokens) override;
  void logprobs(ConstTensor logits, std::span<LogprobsRow> rows) override;
  void run_repeatable(std::span<const uint64_t> key, const std::function<void()>& issue) override;

 private:
  CudaContext& context_;
  const DType activations_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<RowScratch> sampling_, scores_;
  std::unique_ptr<StepGraphs> graphs_;
};

}  // namespace assay
