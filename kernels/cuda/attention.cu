#include <cstdlib>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"

namespace assay {

std::string attention_unsupported(const AttentionShape& shape, const PagedKvView& cache, DType activations) {
  if (shape.head_dim != 64 && shape.head_dim != 128) {
    return "the CUDA kernels serve head_dim 64 and 128; this model has " + std::to_string(shape.head_dim);
  }
  if (shape.num_kv_heads < 1 || shape.num_heads % shape.num_kv_heads != 0) {
    return "the CUDA kernels need num_heads (" + std::to_string(shape.num_heads) +
           ") to be a multiple of num_kv_heads (" + std::to_string(shape.num_kv_heads) + ")";
  }
  if (cache.format != KvFormat::kExact && cache.format != KvFormat::kCertified) {
    return "the CUDA kernels serve the pools exact and certified";
  }
  if (cache.tables.dither_stream != DitherStream::kNone || cache.tables.bypass_count != 0) {
    return "the CUDA kernels serve the certified pool without dither and without bypassed channels";
  }
  if (cache.format == KvFormat::kExact && cache.dtype != activations) {
    return std::string("the exact pool on CUDA holds the dtype of the activations, ") + dtype_name(activations) +
           "; this one holds " + dtype_name(cache.dtype);
  }
  if (cache.page_tokens % kTileTokens != 0) return "page_tokens must be a multiple of 16";
  return "";
}

void launch_attention(CudaContext& context, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                      ConstTensor qkv, const PagedKvView& cache, const kv::MeterView& meter, Tensor out) {
  const AttentionCall call{layer, batch, shape, qkv, cache, meter, out};
  void* scratch = nullptr;
  if (const size_t bytes = decode_scratch_bytes(context, call); bytes > 0) {
    scratch = context.workspace.take(bytes);
    if (scratch == nullptr) return context.check(cudaErrorMemoryAllocation);
  }
  launch_decode(context, call, scratch);
  launch_prefill(context, call);
}

}  // namespace assay
