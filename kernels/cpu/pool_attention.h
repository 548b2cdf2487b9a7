// Causal attention over a compressed pool, with its meter.
//
// A slice's own rows are read from qkv, exact; positions before the slice from the pool, as stored. The stored part
// goes in steps of 64 tokens from position 0 with a running softmax, in splits of kSplitTokens merged in order; the own
// part in tiles of 16 from the slice's start; then the two are merged. So a result depends on the row, what is stored
// and where the slice starts: never on the batch, the threads, or where the slice ends.
//
// Logits and sums are float: the query operand is the float transform, the scale is applied after the product. Metered
// rows leave one MeterCell per head; the radius of own rows is their own float product (bypass_radius).
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv/fold_cell.h"
#include "kernels/ops.h"

namespace assay {

void cpu_pool_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                        const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache,
                        const kv::MeterView& meter, Tensor out);

// Labels and counts the cells that attention left for `layer`.
void cpu_fold_meters(ThreadPool& pool, int32_t layer, const kv::MeterView& meter);

}  // namespace assay
