// Writes rows into the compressed pools: transform, encode, place. A row's bytes depend on the row, its place in its
// page and the pool's tables only. Rows of one page are one task, which also keeps the page's largest |v|: a row at the
// start of a page restarts it, so rows of a page must come in order. A row of a page
// with an exact slot goes there too. Schemes with scales per channel keep a page there until it is whole, and encode it
// then; such a page must have a slot.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace assay {

// The exact row of the cache: `count` floats rounded to `dtype` (float16 saturates).
void round_to_dtype(const float* row, int32_t count, DType dtype, float* out);

void cpu_pool_write(ThreadPool& pool, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                    ConstTensor qkv, const PagedKvView& cache);

// Ops::kv_restore.
int64_t cpu_pool_restore(ThreadPool& pool, std::span<const PageToRestore> pages, const PagedKvView& cache);

}  // namespace assay
