#include "kernels/cuda/cuda_ops.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/row_scratch.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/step_graphs.h"

namespace assay {

CudaOps::CudaOps(CudaContext& context, DType activations)
    : context_(context),
      activations_(activations),
      gemm_(std::make_unique<Gemm>()),
      sampling_(std::make_unique<RowScratch>()),
      scores_(std::make_unique<RowScratch>()),
      graphs_(std::make_unique<StepGraphs>()) {}

CudaOps::~CudaOps() = default;

std::string CudaOps::warning() const {
  return gemm_->unavailable();
}

std::string CudaOps::unsupported(const AttentionShape& shape, const PagedKvView& cache) const {
  return attention_unsupported(shape, cache, activations_);
}

void CudaOps::embed(ConstTensor table, const int32_t* ids, Tensor out) {
  launch_embed(context_, table, ids, out);
}

void CudaOps::rms_norm(ConstTensor x, ConstTensor weight, float eps, Tensor out) {
  context_.side.join(context_);  // the fold has had the output projection to run beside
  launch_rms_norm(context_, x, weight, eps, out);
}

void CudaOps::linear(ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out) {
  gemm_->linear(context_, x, parts, accumulate, out);
}

void CudaOps::rope_angles(const BatchView& batch, const RopeView& rope, float* cos_sin) {
  launch_rope_angles(context_, batch, rope, cos_sin);
}

void CudaOps::qk_norm_rope(const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                           const float* cos_sin, Tensor qkv) {
  launch_qk_norm_rope(context_, shape, q_norm, k_norm, eps, cos_sin, qkv);
}

void CudaOps::kv_write(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                       const PagedKvView& cache) {
  launch_kv_write(context_, layer, batch, shape, qkv, cache);
}

void CudaOps::attention(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                        const PagedKvView& cache, const kv::MeterView& meter, Tensor out) {
  context_.side.join(context_);
  launch_attention(context_, layer, batch, shape, qkv, cache, meter, out);
}

void CudaOps::fold_meters(int32_t layer, const kv::MeterView& meter) {
  context_.side.begin(context_);  // nothing in the step reads the tallies
  launch_fold_meters(context_, layer, meter);
  context_.side.end(context_);
}

void CudaOps::silu_mul(ConstTensor gate_up, Tensor out) {
  launch_silu_mul(context_, gate_up, out);
}

void CudaOps::gated_linear(ConstTensor x, std::span<const LinearPart> parts, Tensor gate_up, Tensor out) {
  const LinearCall gate{x, parts[0].weight, parts[0].bias, out};
  if (gated_gemv_fits(gate, parts[1])) return launch_gated_gemv(context_, gate, parts[1]);
  Ops::gated_linear(x, parts, gate_up, out);
}

void CudaOps::gather_rows(ConstTensor x, const int32_t* rows, Tensor out) {
  launch_gather_rows(context_, x, rows, out);
}

void CudaOps::sample(ConstTensor logits, std::span<const SamplingRow> rows, int32_t* tokens) {
  cuda_sample(context_, *sampling_, logits, rows, tokens);
}

void CudaOps::logprobs(ConstTensor logits, std::span<LogprobsRow> rows) {
  cuda_logprobs(context_, *scores_, logits, rows);
}

void CudaOps::run_repeatable(std::span<const uint64_t> key, const std::function<void()>& issue) {
  graphs_->run(context_, key, issue);
}

}  // namespace assay
