// Causal attention over a paged cache.
//
// Each (row, head) goes over its context in tiles of 16 tokens from position 0 with a running softmax, in splits of
// kSplitTokens which are merged in order. Neither depends on the batch, the chunk the row came in, or the threads, so
// the result does not either. Rows and heads of a group share the loads of K and V only.
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace assay {

constexpr int32_t kSplitTokens = 512;

void cpu_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                   const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache, Tensor out);

}  // namespace assay
