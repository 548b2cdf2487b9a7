#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_state.h"
#include "kernels/cpu/elements.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
// clang-format off: foreach_target.h comes first
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/load-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Asks for the record of the next tile ahead of its use, a part at a time so that the requests do not queue up: pages
// lie anywhere, so the hardware cannot guess. Nothing after the last tile.
class NextRecord {
 public:
  NextRecord(const AttentionBlock& b, int32_t tile, int32_t end) {
    if (tile + 1 >= end) return;
    next_ = b.cache->record_of(b.layer, b.pages, b.kv_head, (tile + 1) * kTileTokens);
    end_ = next_ + b.cache->record_bytes;
    part_ = b.cache->record_bytes / 8;
  }
  HWY_INLINE void prefetch_part() {
    for (const std::byte* stop = std::min(end_, next_ + part_); next_ < stop; next_ += 64) hwy::Prefetch(next_);
  }

 private:
  const std::byte* next_ = nullptr;
  const std::byte* end_ = nullptr;
  int64_t part_ = 0;
};

// K and V of one record as floats.
void load_tile(const AttentionBlock& b, int32_t tile, NextRecord& next) {
  const std::byte* record = b.cache->record_of(b.layer, b.pages, b.kv_head, tile * kTileTokens);
  with_elements(b.cache->dtype, record, [&](const auto* elements) {
    const size_t dim = static_cast<size_t>(b.head_dim), half = dim * kTileTokens / 2;
    convert_to_f32(elements, half, b.k_tile);
    next.prefetch_part();
    convert_to_f32(elements + half, half, b.k_tile + half);
    const auto* v = elements + ExactRecord::v_index(b.head_dim, 0, 0);
    for (size_t t = 0; t < kTileTokens; ++t) {
      if (t % 8 == 0) next.prefetch_part();
      convert_to_f32(v + t * dim, dim, b.v_tile + t * b.dim_stride);
    }
  });
}

// Scores -> probabilities relative to the new maximum; `decay` is what the old state shrinks by.
HWY_INLINE void softmax_pair(const AttentionBlock& b, int32_t pair, int32_t visible, SoftmaxState& state) {
  const TileTag d;
  float* scores = b.probs + pair * kTileTokens;
  const auto none = hn::Set(d, -std::numeric_limits<float>::infinity());
  hn::Vec<TileTag> s[kTileVectors];
  auto largest = none;
  for (int i = 0; i < kTileVectors; ++i) {
    const auto seen = hn::FirstN(d, static_cast<size_t>(std::max(0, visible - i * kLanes)));
    s[i] = hn::IfThenElse(seen, hn::Load(d, scores + i * kLanes), none);
    largest = hn::Max(largest, s[i]);
  }
  const float old_max = state.max[pair];
  const float new_max = std::max(old_max, hn::GetLane(hn::MaxOfLanes(d, largest)));
  auto sum = hn::Zero(d);
  for (int i = 0; i < kTileVectors; ++i) {
    const auto p = hn::Exp(d, hn::Sub(s[i], hn::Set(d, new_max)));
    hn::Store(p, d, scores + i * kLanes);
    sum = hn::Add(sum, p);
  }
  const float decay = old_max == new_max ? 1.0f : std::exp(old_max - new_max);
  state.max[pair] = new_max;
  state.sum[pair] = state.sum[pair] * decay + hn::GetLane(hn::SumOfLanes(d, sum));
  b.decay[pair] = decay;
}

// Runs tiles [begin, end) into a fresh state.
void AttendTilesKernel(const AttentionBlock& b, int32_t begin, int32_t end, SoftmaxState state) {
  std::fill_n(state.max, b.pairs, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, b.pairs, 0.0f);
  std::fill_n(state.acc, static_cast<int64_t>(b.pairs) * b.dim_stride, 0.0f);
  for (int32_t tile = begin; tile < end; ++tile) {
    NextRecord next(b, tile, end);
    load_tile(b, tile, next);
    next.prefetch_part();
    score_tile(b);
    next.prefetch_part();
    for (int32_t pair = 0; pair < b.pairs; ++pair) {
      const int32_t visible = b.visible(pair, tile);
      if (visible > 0) softmax_pair(b, pair, visible, state);
      next.prefetch_part();
    }
    accumulate_tile(b, tile, state.acc);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(AttendTilesKernel);

namespace {

constexpr int32_t kSplitTiles = kSplitTokens / kTileTokens;
constexpr int32_t kBlockPairs = 48;  // (row, head) pairs that share a loaded tile

int32_t round_up(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Some rows of one sequence and one KV head.
struct Item {
  int32_t sequence;
  int32_t first_row;  // of the batch
  int32_t rows;
  int32_t kv_head;
  int32_t last_position;
  int32_t splits() const { return last_position / kSplitTokens + 1; }
};

struct Problem {
  int32_t layer;
  const BatchView& batch;
  const AttentionShape& shape;
  ConstTensor qkv;
  const PagedKvView& cache;
  Tensor out;
  int32_t group() const { return shape.num_heads / shape.num_kv_heads; }
  int32_t dim_stride() const { return round_up(shape.head_dim, kTileTokens); }
};

std::vector<Item> make_items(const Problem& problem) {
  const int32_t block_rows = std::max(1, kBlockPairs / problem.group());
  std::vector<Item> items;
  for (int32_t s = 0; s < problem.batch.num_sequences; ++s) {
    const int32_t end = problem.batch.first_row[s + 1];
    for (int32_t row = problem.batch.first_row[s]; row < end; row += block_rows) {
      const int32_t rows = std::min(block_rows, end - row);
      for (int32_t h = 0; h < problem.shape.num_kv_heads; ++h) {
        items.push_back({s, row, rows, h, problem.batch.positions[row + rows - 1]});
      }
    }
  }
  return items;
}

SoftmaxState state_at(float* memory, int32_t pairs) {
  const int32_t padded = round_up(pairs, kTileTokens);
  return {memory, memory + padded, memory + 2 * padded};
}

// Takes pieces off a block of memory, each aligned for vectors.
class Carver {
 public:
  explicit Carver(float* memory) : next_(memory) {}
  float* take(int32_t count) {
    float* piece = next_;
    next_ += round_up(count, kTileTokens);
    return piece;
  }

 private:
  float* next_;
};

size_t block_floats(const Problem& problem, int32_t pairs) {
  const int64_t dim = problem.dim_stride(), padded = round_up(pairs, kTileTokens);
  return static_cast<size_t>(padded * (dim + kTileTokens + 1) + 2 * dim * kTileTokens + 2 * padded * (dim + 2));
}

void load_queries(const Problem& problem, const Item& item, float* q) {
  const int32_t dim = problem.shape.head_dim, stride = problem.dim_stride(), group = problem.group();
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int32_t pair = 0; pair < item.rows * group; ++pair) {
    const int64_t row = item.first_row + pair / group;
    const int32_t head = item.kv_head * group + pair % group;
    const float* from = problem.qkv.f32() + row * problem.qkv.row_stride + head * dim;
    float* to = q + static_cast<int64_t>(pair) * stride;
    for (int32_t c = 0; c < dim; ++c) to[c] = from[c] * scale;
    std::fill(to + dim, to + stride, 0.0f);
  }
}

AttentionBlock make_block(const Problem& problem, const Item& item, Carver& memory) {
  const int32_t group = problem.group(), pairs = item.rows * group, stride = problem.dim_stride();
  AttentionBlock b{};
  b.cache = &problem.cache;
  b.layer = problem.layer;
  b.pages = problem.batch.pages_of(item.sequence);
  b.kv_head = item.kv_head;
  b.head_dim = problem.shape.head_dim;
  b.dim_stride = stride;
  b.first_position = problem.batch.positions[item.first_row];
  b.group = group;
  b.pairs = pairs;
  b.k_tile = memory.take(stride * kTileTokens);
  b.v_tile = memory.take(stride * kTileTokens);
  b.probs = memory.take(pairs * kTileTokens);
  b.decay = memory.take(pairs);
  float* q = memory.take(pairs * stride);
  load_queries(problem, item, q);
  b.q = q;
  std::fill_n(b.v_tile, stride * kTileTokens, 0.0f);  // the padding stays zero
  return b;
}

void attend_split(const AttentionBlock& block, const Item& item, int32_t split, SoftmaxState state) {
  const int32_t end = std::min((split + 1) * kSplitTiles, item.last_position / kTileTokens + 1);
  HWY_DYNAMIC_DISPATCH(AttendTilesKernel)(block, split * kSplitTiles, end, state);
}

// total = total merged with the next split, one pair.
void merge_pair(const SoftmaxState& total, const SoftmaxState& next, int32_t pair, int32_t stride) {
  const float max = std::max(total.max[pair], next.max[pair]);
  const float a = std::exp(total.max[pair] - max), b = std::exp(next.max[pair] - max);
  total.max[pair] = max;
  total.sum[pair] = total.sum[pair] * a + next.sum[pair] * b;
  float* to = total.acc + static_cast<int64_t>(pair) * stride;
  const float* from = next.acc + static_cast<int64_t>(pair) * stride;
  for (int32_t c = 0; c < stride; ++c) to[c] = to[c] * a + from[c] * b;
}

void store_output(const Problem& problem, const Item& item, const SoftmaxState& state) {
  const int32_t dim = problem.shape.head_dim, group = problem.group();
  for (int32_t pair = 0; pair < item.rows * group; ++pair) {
    const int64_t row = item.first_row + pair / group;
    float* to = problem.out.f32() + row * problem.out.row_stride + (item.kv_head * group + pair % group) * dim;
    const float* from = state.acc + static_cast<int64_t>(pair) * problem.dim_stride();
    const float inverse = 1.0f / state.sum[pair];
    for (int32_t c = 0; c < dim; ++c) to[c] = from[c] * inverse;
  }
}

void attend_item(const Problem& problem, const Item& item, float* memory) {
  Carver carver(memory);
  const AttentionBlock block = make_block(problem, item, carver);
  const int32_t floats = round_up(block.pairs, kTileTokens) * (problem.dim_stride() + 2);
  const SoftmaxState total = state_at(carver.take(floats), block.pairs);
  const SoftmaxState next = state_at(carver.take(floats), block.pairs);
  attend_split(block, item, 0, total);
  for (int32_t split = 1; split < item.splits(); ++split) {
    attend_split(block, item, split, next);
    for (int32_t pair = 0; pair < block.pairs; ++pair) {
      if (block.visible(pair, split * kSplitTiles) > 0) merge_pair(total, next, pair, problem.dim_stride());
    }
  }
  store_output(problem, item, total);
}

// Few long items: their splits become tasks of their own, merged afterwards in order.
void attend_by_splits(ThreadPool& pool, Scratch& scratch, const Problem& problem, const std::vector<Item>& items) {
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
  const int32_t pairs = problem.group(), stride = problem.dim_stride();  // one row each
  const int32_t floats = round_up(pairs, kTileTokens) * (stride + 2);
  const auto states = hwy::AllocateAligned<float>(parts.size() * static_cast<size_t>(floats));
  if (!states) std::abort();
  const auto state_of = [&](size_t part) { return state_at(states.get() + part * static_cast<size_t>(floats), pairs); };
  pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t p, int thread) {
    const Part& part = parts[static_cast<size_t>(p)];
    Carver carver(scratch.floats(thread, block_floats(problem, pairs)));
    const AttentionBlock block = make_block(problem, items[part.item], carver);
    attend_split(block, items[part.item], part.split, state_of(static_cast<size_t>(p)));
  });
  for (size_t i = 0; i < items.size(); ++i) {
    const SoftmaxState total = state_of(first_part[i]);
    for (int32_t split = 1; split < items[i].splits(); ++split) {
      for (int32_t pair = 0; pair < pairs; ++pair) {
        merge_pair(total, state_of(first_part[i] + static_cast<size_t>(split)), pair, stride);
      }
    }
    store_output(problem, items[i], total);
  }
}

}  // namespace

void cpu_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                   const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache, Tensor out) {
  const Problem problem{layer, batch, shape, qkv, cache, out};
  const std::vector<Item> items = make_items(problem);
  const bool decode_only = batch.num_tokens == batch.num_sequences;
  const bool few = items.size() < 4 * static_cast<size_t>(pool.num_threads());
  if (decode_only && few && batch.max_context > kSplitTokens && pool.num_threads() > 1) {
    return attend_by_splits(pool, scratch, problem, items);
  }
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const Item& item = items[static_cast<size_t>(i)];
    attend_item(problem, item, scratch.floats(thread, block_floats(problem, item.rows * problem.group())));
  });
}

}  // namespace assay
#endif  // HWY_ONCE
