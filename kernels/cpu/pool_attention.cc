#include "kernels/cpu/pool_attention.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/pool_finish.h"
#include "kernels/cpu/pool_kernels.h"
#include "kernels/cpu/pool_problem.h"

namespace assay {
namespace {

constexpr int32_t kSplitTiles = kSplitTokens / kTileTokens;

int32_t tiles_of(int32_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens;
}

void run_split(const PoolBlock& b, int32_t split, const PoolState& state) {
  clear_state(state, b.stored.pairs, b.acc_stride);
  const int32_t end = std::min((split + 1) * kSplitTiles, tiles_of(b.stored_tokens));
  pool_run_stored_tiles(b, split * kSplitTiles, end, state);
}

// Exact pages, then the slice's own rows.
void run_exact(const PoolProblem& problem, const PoolItem& item, const PoolBlock& b, const PoolState& state) {
  clear_state(state, b.own.pairs, b.own.dim_stride);
  std::fill_n(b.own.v_tile, b.own.dim_stride * kTileTokens, 0.0f);
  if (problem.cache.exact.slots != nullptr || b.page_rows != nullptr) pool_run_exact_pages(b, state);
  const int32_t first_key = problem.shape.num_heads + item.kv_head,
                first_value = first_key + problem.shape.num_kv_heads;
  pool_run_own_rows(b, problem.own(item, first_key), problem.own(item, first_value), problem.qkv.row_stride,
                    item.first_own + item.rows, state);
}

// Few long items of one row: their splits become tasks of their own, merged afterwards in order.
void attend_by_splits(ThreadPool& pool, Scratch& scratch, const PoolProblem& problem,
                      const std::vector<PoolItem>& items) {
  struct Part {
    size_t item;
    int32_t split;
  };
  std::vector<Part> parts;
  std::vector<size_t> first_part;
  for (size_t i = 0; i < items.size(); ++i) {
    first_part.push_back(parts.size());
    for (int32_t split = 0; split < items[i].splits(); ++split) parts.push_back({i, split});
  }
  const int32_t pairs = problem.group();  // one row each
  Carver one(nullptr);
  take_state(one, pairs, problem.acc_stride());
  const auto memory = hwy::AllocateAligned<float>(std::max<size_t>(1, parts.size()) * one.taken());
  if (!memory) std::abort();
  const auto state_of = [&](size_t part) {
    Carver carver(memory.get() + part * one.taken());
    return take_state(carver, pairs, problem.acc_stride());
  };
  pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t p, int thread) {
    const Part& part = parts[static_cast<size_t>(p)];
    Carver carver(scratch.floats(thread, pool_item_floats(problem, pairs)));
    run_split(make_pool_block(problem, items[part.item], carver), part.split, state_of(static_cast<size_t>(p)));
  });
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const PoolItem& item = items[static_cast<size_t>(i)];
    Carver carver(scratch.floats(thread, pool_item_floats(problem, pairs)));
    const PoolBlock b = make_pool_block(problem, item, carver);
    const PoolState exact = take_state(carver, pairs, problem.shape.head_dim);
    const size_t first = first_part[static_cast<size_t>(i)];
    for (int32_t split = 1; split < item.splits(); ++split) {
      merge_split(state_of(first), state_of(first + static_cast<size_t>(split)), pairs, problem.acc_stride());
    }
    run_exact(problem, item, b, exact);
    finish_item(problem, item, b, item.splits() > 0 ? state_of(first) : exact, exact);
  });
}

}  // namespace

size_t pool_item_floats(const PoolProblem& problem, int32_t pairs) {
  Carver carver(nullptr);
  for (int32_t stride : {problem.shape.head_dim, problem.acc_stride(), problem.acc_stride()}) {
    take_state(carver, pairs, stride);
  }
  return pool_block_floats(problem, pairs) + carver.taken();
}

void attend_pool_item(const PoolProblem& problem, const PoolItem& item, const PoolItemOptions& options, float* memory) {
  Carver carver(memory);
  PoolBlock b = make_pool_block(problem, item, carver);
  b.page_rows = options.page_rows;
  b.log = options.log;
  const int32_t pairs = b.own.pairs;
  const PoolState exact = take_state(carver, pairs, problem.shape.head_dim);
  const PoolState total = take_state(carver, pairs, problem.acc_stride());
  const PoolState next = take_state(carver, pairs, problem.acc_stride());
  for (int32_t split = 0; split < item.splits(); ++split) {
    run_split(b, split, split == 0 ? total : next);
    if (split > 0) merge_split(total, next, pairs, problem.acc_stride());
  }
  run_exact(problem, item, b, exact);
  finish_item(problem, item, b, total, exact);
}

void cpu_pool_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                        const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache,
                        const kv::MeterView& meter, Tensor out) {
  const PoolProblem problem = make_pool_problem(layer, batch, shape, qkv, cache, meter, out);
  const std::vector<PoolItem> items = make_pool_items(problem);
  const bool decode_only = batch.num_tokens == batch.num_sequences;
  const bool few = items.size() < 4 * static_cast<size_t>(pool.num_threads());
  if (decode_only && few && batch.max_context > kSplitTokens && pool.num_threads() > 1) {
    return attend_by_splits(pool, scratch, problem, items);
  }
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const PoolItem& item = items[static_cast<size_t>(i)];
    attend_pool_item(problem, item, {}, scratch.floats(thread, pool_item_floats(problem, item.rows * problem.group())));
  });
}

}  // namespace assay
