// The attention side of the CUDA back end: cache writes, attention over every pool, the fold of its meters.
//
// Contracts are those of Ops (ops.h). All launches are asynchronous on the context's stream, take their scratch from
// its workspace and depend on shapes and batch size alone, never on lengths that only the device knows: what they issue
// can be captured in a graph. Errors: launch failures go to CudaContext::check; a shape that attention_unsupported()
// names aborts. Arithmetic: float accumulation. The work of a step is cut by its total length, so a row's last bits may
// depend on its company; the same batch gives the same bits (ADR 29).
#pragma once

#include <string>

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace assay {

// Empty where these kernels serve the model and its pool, otherwise a sentence that names what they cannot do.
std::string attention_unsupported(const AttentionShape& shape, const PagedKvView& cache, DType activations);

void launch_kv_write(CudaContext& context, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                     ConstTensor qkv, const PagedKvView& cache);

void launch_attention(CudaContext& context, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                      ConstTensor qkv, const PagedKvView& cache, const kv::MeterView& meter, Tensor out);

void launch_fold_meters(CudaContext& context, int32_t layer, const kv::MeterView& meter);

}  // namespace assay
