// Causal attention over a compressed pool, with its meter.
//
// A slice's own rows are read from qkv, exact; positions before the slice from the pool, as stored, or exact where
// their page has exact rows (PagedKvView::exact_page). The stored part goes in steps of some tiles from position 0 with
// a running softmax, in splits of kSplitTokens merged in order; then the exact pages and the own part in tiles of 16;
// then the two are merged: one softmax over both. So a result depends on the row, what is stored, which pages are exact
// and where the slice starts: never on the batch, the threads, or where the slice ends.
//
// Logits and sums are float, or exact sums of integers put together in float; scales are applied after the product.
// Metered rows leave one MeterCell per head. Exact rows meet the model's own query; their radius is that of the float
// product (bypass_radius). A cell counts as compressed the tokens that were read as stored.
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv/fold_cell.h"
#include "kernels/ops.h"

namespace assay {

struct PoolProblem;
struct PoolItem;
struct AttentionLogView;

// How one item differs from what the cache says, and who wants to know more of it. Null: nothing, nobody.
struct PoolItemOptions {
  const std::byte* const* page_rows = nullptr;  // [pages of the stored tokens] blocks as ExactPages, null = the record
  const AttentionLogView* log = nullptr;        // items of one row
};

// Outputs and cells of one item (pool_problem.h), in `memory` of pool_item_floats floats, aligned for vectors.
void attend_pool_item(const PoolProblem& problem, const PoolItem& item, const PoolItemOptions& options, float* memory);
size_t pool_item_floats(const PoolProblem& problem, int32_t pairs);

void cpu_pool_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                        const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache,
                        const kv::MeterView& meter, Tensor out);

}  // namespace assay
