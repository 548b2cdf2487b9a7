// One call of attention over a compressed pool, cut into items, and the working memory of an item.
//
// Owns: nothing; memory is carved from blocks of the caller's. Threads: values; a Work belongs to one thread.
#pragma once

#include <vector>

#include "kernels/cpu/pool_attention_state.h"
#include "kernels/ops.h"

namespace assay {

// Takes pieces off a block of memory, each aligned for vectors; without memory it only counts.
class Carver {
 public:
  explicit Carver(float* memory) : memory_(memory) {}
  float* take(int64_t count) {
    float* piece = memory_ == nullptr ? nullptr : memory_ + taken_;
    taken_ += static_cast<size_t>((count + 15) / 16 * 16);
    return piece;
  }
  size_t taken() const { return taken_; }

 private:
  float* memory_;
  size_t taken_ = 0;
};

// Some rows of one sequence and one KV head.
struct PoolItem {
  int32_t sequence;
  int32_t first_row;  // of the batch
  int32_t rows;
  int32_t kv_head;
  int32_t stored;     // tokens before the slice
  int32_t first_own;  // of row 0, from the slice's start
  int32_t splits() const;
};

struct PoolProblem {
  int32_t layer;
  const BatchView& batch;
  const AttentionShape& shape;
  ConstTensor qkv;
  const PagedKvView& cache;
  const kv::MeterView& meter;
  Tensor out;
  bool fragments;
  bool integers;

  int32_t group() const { return shape.num_heads / shape.num_kv_heads; }
  int32_t groups() const;  // scales per row
  int32_t bands() const;   // witnesses per row
  int32_t bypass_count() const { return cache.tables.bypass == nullptr ? 0 : cache.tables.bypass_count; }
  int32_t acc_stride() const { return fragments ? 4 * shape.head_dim : shape.head_dim; }
  const float* own(const PoolItem& item, int32_t first_head) const {  // K (V) rows of the slice
    return qkv.f32() + (item.first_row - item.first_own) * qkv.row_stride + first_head * shape.head_dim;
  }
  int32_t head(const PoolItem& item, int32_t pair) const { return item.kv_head * group() + pair % group(); }
  int32_t row(const PoolItem& item, int32_t pair) const { return item.first_row + pair / group(); }
  // Index of the pair's metered row, -1 = not metered.
  int32_t cell(const PoolItem& item, int32_t pair) const {
    return meter.num_metered == 0 ? -1 : meter.cell_of_row[row(item, pair)];
  }
};

PoolProblem make_pool_problem(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                              const PagedKvView& cache, const kv::MeterView& meter, Tensor out);
std::vector<PoolItem> make_pool_items(const PoolProblem& problem);

PoolState take_state(Carver& carver, int32_t pairs, int32_t acc_stride);
void clear_state(const PoolState& state, int32_t pairs, int32_t acc_stride);

// Floats of make_pool_block.
size_t pool_block_floats(const PoolProblem& problem, int32_t pairs);
// Memory, queries and terms of an item.
PoolBlock make_pool_block(const PoolProblem& problem, const PoolItem& item, Carver& carver);

// Dither of the token at `position`: xi[head_dim]. Pools without dither: zeros.
void pool_dither_row(const PagedKvView& cache, int32_t layer, int32_t kv_head, int32_t position, float* xi);
// Products of all queries of the block with the dither of `count` positions (a multiple of 16, at most kDitherTokens)
// from `first` on, into terms.dither_dots.
void pool_load_dither_dots(const PoolBlock& b, int32_t first, int32_t count);

}  // namespace assay
