#include "kernels/cpu/pool_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/pool_attention_state.h"
#include "kernels/cpu/tile_decoder.h"
#include "kernels/kv/fragment_order.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool_attention.cc"
// clang-format off: foreach_target.h comes first
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/fragments-inl.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/rotate-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using V = hn::Vec<TileTag>;
constexpr float kLargestExponent = 88.0f;  // e^88 is finite; its square is not, so larger radii still overflow

// Running sums of one lane vector of one pair.
struct LaneSums {
  V sum[kNumPairSums];

  HWY_INLINE void load(const float* from, float decay) {
    const TileTag d;
    const auto factor = hn::Set(d, decay);
    for (int i = 0; i < kNumPairSums; ++i) {
      const auto old = hn::Load(d, from + i * 16);
      sum[i] = i == kRadius || i == kOtherRadius ? old : hn::Mul(old, factor);
    }
  }
  HWY_INLINE void store(float* to) const {
    const TileTag d;
    for (int i = 0; i < kNumPairSums; ++i) hn::Store(sum[i], d, to + i * 16);
  }
  HWY_INLINE void add_radius(V p, V radius, int b1, int b2, int largest) {
    const TileTag d;
    const auto growth = hn::Sub(hn::Exp(d, hn::Min(radius, hn::Set(d, kLargestExponent))), hn::Set(d, 1.0f));
    const auto product = hn::Mul(p, growth);
    sum[b1] = hn::Add(sum[b1], product);
    sum[b2] = hn::MulAdd(product, growth, sum[b2]);
    sum[largest] = hn::Max(sum[largest], radius);
  }
};

// One step of softmax and meter for one pair. scores[tokens] become the weights of V. `radii(i, other)` gives the
// radii of scores i.. and, in `other`, the smaller ones; both are ignored where a token is masked.
template <class Radii>
HWY_INLINE float softmax_step(const StepSide& side, int32_t tokens, bool metered, bool dithered, const Radii& radii,
                              float* scores, float* max, float* sums) {
  const TileTag d;
  const auto zero = hn::Zero(d);
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int32_t i = 0; i < tokens; i += kLanes) {
    const auto mask = hn::Load(d, side.masked + i);
    const auto s = hn::IfThenElse(hn::Lt(mask, zero), mask, hn::Load(d, scores + i));
    hn::Store(s, d, scores + i);
    largest = hn::Max(largest, s);
  }
  const float new_max = std::max(*max, hn::GetLane(hn::MaxOfLanes(d, largest)));
  const float decay = *max == new_max ? 1.0f : std::exp(*max - new_max);
  *max = new_max;
  for (int32_t lane = 0; lane < kTileTokens; lane += kLanes) {
    LaneSums lanes;
    lanes.load(sums + lane, decay);
    for (int32_t i = lane; i < tokens; i += kTileTokens) {
      const auto p = hn::Exp(d, hn::Sub(hn::Load(d, scores + i), hn::Set(d, new_max)));
      lanes.sum[kWeight] = hn::Add(lanes.sum[kWeight], p);
      if (metered) {
        const auto masked = hn::Lt(hn::Load(d, side.masked + i), zero);
        V other = zero;
        const V radius = hn::IfThenZeroElse(masked, radii(i, &other));
        lanes.add_radius(p, radius, kB1, kB2, kRadius);
        if (dithered) lanes.add_radius(p, hn::IfThenZeroElse(masked, other), kOtherB1, kOtherB2, kOtherRadius);
        lanes.sum[kValueError] = hn::MulAdd(p, hn::Load(d, side.rho + i), lanes.sum[kValueError]);
      }
      hn::Store(hn::Mul(p, hn::Load(d, side.value_scale + i)), d, scores + i);
    }
    lanes.store(sums + lane);
  }
  return decay;
}

// ---- Stored rows in fragment order
#if HWY_TARGET != HWY_SCALAR

const std::byte* record_at(const PoolBlock& b, int32_t tile) {
  return b.stored.cache->record_of(b.stored.layer, b.stored.pages, b.stored.kv_head, tile * kTileTokens);
}

// Sixteen fp16 numbers times `factor`.
HWY_INLINE void load_halves(const std::byte* from, float factor, float* to) {
  const TileTag d;
  const F16* halves = reinterpret_cast<const F16*>(from);
  for (int i = 0; i < 16; i += kLanes) hn::Store(hn::Mul(load_f32(d, halves + i), hn::Set(d, factor)), d, to + i);
}

// The same from token order to side order.
HWY_INLINE void load_in_side_order(const std::byte* from, float factor, float* to) {
  HWY_ALIGN float by_token[16];
  load_halves(from, factor, by_token);
  for (int j = 0; j < 4; ++j) {
    std::memcpy(to + 4 * j, by_token + 2 * j, 8);
    std::memcpy(to + 4 * j + 2, by_token + 2 * j + 8, 8);
  }
}

// Takes tokens from `count` on out of a tile; what lies there is older than the sequence.
void mask_tail(const StepSide& side, int32_t at, int32_t count) {
  for (int32_t i = 0; i < kTileTokens; ++i) {
    const int32_t token = 2 * (i / 4) + i % 2 + i % 4 / 2 * 8;
    if (token < count) continue;
    side.masked[at + i] = -std::numeric_limits<float>::infinity();
    side.scale[at + i] = side.witness[at + i] = side.value_scale[at + i] = side.rho[at + i] = 0.0f;
  }
}

void load_side(const PoolBlock& b, const std::byte* record, int32_t at, int32_t count) {
  const int32_t dim = b.stored.head_dim;
  load_in_side_order(record + CertifiedRecord::k_scales(dim), b.softmax_scale, b.side.scale + at);
  load_in_side_order(record + CertifiedRecord::witness(dim), 1.0f, b.side.witness + at);
  load_halves(record + CertifiedRecord::v_scales(dim), 1.0f, b.side.value_scale + at);
  load_halves(record + CertifiedRecord::rho(dim), 1.0f, b.side.rho + at);
  std::fill_n(b.side.masked + at, kTileTokens, 0.0f);
  if (count < kTileTokens) mask_tail(b.side, at, count);
}

// Up to 64 tokens from `first_tile` on. The records of the next step are asked for meanwhile.
class FragmentStep {
 public:
  FragmentStep(const PoolBlock& b, int32_t first_tile, int32_t end_tile) : b_(b), first_(first_tile) {
    tiles_ = std::min(kStepTiles, end_tile - first_tile);
    for (int32_t i = 0; i < tiles_; ++i) records_[i] = record_at(b, first_tile + i);
    next_tiles_ = std::clamp(end_tile - first_tile - kStepTiles, 0, kStepTiles);
    for (int32_t i = 0; i < next_tiles_; ++i) next_[i] = record_at(b, first_tile + kStepTiles + i);
  }

  void run(const PoolState& state) {
    for (int32_t i = 0; i < tiles_; ++i) score(i);
    for (int32_t pair = 0; pair < b_.stored.pairs; ++pair) softmax(pair, state);
    for (int32_t block = 0; block < b_.stored.head_dim / 32; ++block) {
      for (int row = 0; row < 8; row += kSumRows) accumulate(block, row, state);
    }
  }

 private:
  // Part `part` of `parts` of the next step's records.
  HWY_INLINE void prefetch(int32_t part, int32_t parts) const {
    const int64_t bytes = b_.stored.cache->record_bytes, begin = bytes * part / parts, end = bytes * (part + 1) / parts;
    for (int32_t i = 0; i < next_tiles_; ++i) {
      for (int64_t at = begin; at < end; at += 64) hwy::Prefetch(next_[i] + at);
    }
  }

  void score(int32_t i) {
    const int32_t at = i * kTileTokens;
    load_side(b_, records_[i], at, b_.stored_tokens - (first_ + i) * kTileTokens);
    const uint8_t* k = reinterpret_cast<const uint8_t*>(records_[i]);
    for (int row = 0; row < 8; row += kScoreRows) {
      for_pair_groups(b_.stored.pairs, [&]<int P>(int32_t pair) {
        score_fragment_rows<P>(b_, k, b_.side.scale + at, pair, row, b_.scores + pair * kStepTokens + at);
      });
      prefetch(2 * i + row / kScoreRows, 16);
    }
  }

  void softmax(int32_t pair, const PoolState& state) {
    const TileTag d;
    const auto factor = hn::Set(d, b_.factor[pair]);
    const auto radii = [&](int32_t i, V*) { return hn::Mul(factor, hn::Load(d, b_.side.witness + i)); };
    b_.stored.decay[pair] =
        softmax_step(b_.side, tiles_ * kTileTokens, b_.metered[pair] != 0, false, radii, b_.scores + pair * kStepTokens,
                     state.max + pair, state.sums + pair * kPairSumFloats);
  }

  void accumulate(int32_t block, int row, const PoolState& state) {
    const uint8_t* v[kStepTiles];
    for (int32_t i = 0; i < tiles_; ++i) {
      v[i] = reinterpret_cast<const uint8_t*>(records_[i]) + CertifiedRecord::v_payload(b_.stored.head_dim);
    }
    for_pair_groups(b_.stored.pairs, [&]<int P>(int32_t pair) {
      accumulate_fragment_rows<P>(b_, v, tiles_, pair, block, row, state.acc);
    });
    const int32_t parts = b_.stored.head_dim / 32 * (8 / kSumRows);
    prefetch(parts + block * (8 / kSumRows) + row / kSumRows, 2 * parts);
  }

  const PoolBlock& b_;
  const int32_t first_;
  int32_t tiles_ = 0, next_tiles_ = 0;
  const std::byte* records_[kStepTiles] = {};
  const std::byte* next_[kStepTiles] = {};
};

void run_fragments(const PoolBlock& b, int32_t begin, int32_t end, const PoolState& state) {
  for (int32_t tile = begin; tile < end; tile += kStepTiles) FragmentStep(b, tile, end).run(state);
}

#endif  // HWY_SCALAR

// ---- Rows as floats: stored ones decoded a tile at a time, and the slice's own

// Scores, softmax and sums of one tile that k_tile and v_tile of `a` hold.
template <class Radii>
HWY_INLINE void run_float_tile(const PoolBlock& b, const AttentionBlock& a, int32_t tile, const Radii& radii,
                               const PoolState& state) {
  HWY_ALIGN float masked[kTileTokens], ones[kTileTokens];
  std::fill_n(ones, kTileTokens, 1.0f);
  score_tile(a);
  for (int32_t pair = 0; pair < a.pairs; ++pair) {
    const int32_t visible = a.visible(pair, tile);
    if (visible <= 0) continue;
    for (int32_t t = 0; t < kTileTokens; ++t) masked[t] = t < visible ? 0.0f : -std::numeric_limits<float>::infinity();
    const StepSide side{masked, nullptr, nullptr, ones, b.side.rho};
    a.decay[pair] = softmax_step(
        side, kTileTokens, b.metered[pair] != 0, b.dithered, [&](int32_t i, V* other) { return radii(pair, i, other); },
        a.probs + pair * kTileTokens, state.max + pair, state.sums + pair * kPairSumFloats);
  }
  accumulate_tile(a, tile, state.acc);
}

void run_decoded_tile(const PoolBlock& b, int32_t tile, const PoolState& state) {
  decode_tile(b, tile);
  const float* witness = b.side.witness;
  run_float_tile(
      b, b.stored, tile,
      [&](int32_t pair, int32_t i, V*) {
        const TileTag d;
        return hn::Mul(hn::Set(d, b.factor[pair]), hn::Load(d, witness + i));
      },
      state);
}

// rows[16] of `dim` floats, `stride` apart, `count` of them there -> columns [dim][16], zeros for the rest.
void transpose_rows(const float* rows, int64_t stride, int32_t count, int32_t dim, float* columns) {
#if HWY_TARGET == HWY_SCALAR
  for (int32_t i = 0; i < dim * kTileTokens; ++i) {
    const int32_t t = i % kTileTokens;
    columns[i] = t < count ? rows[t * stride + i / kTileTokens] : 0.0f;
  }
#else
  using Quarter = hn::CappedTag<float, 4>;
  const Quarter d;
  const hn::Repartition<double, Quarter> d2;
  const auto as_pairs = [&](hn::Vec<Quarter> x) { return hn::BitCast(d2, x); };
  for (int32_t t = 0; t < kTileTokens; t += 4) {
    for (int32_t c = 0; c < dim; c += 4) {
      hn::Vec<Quarter> in[4];
      for (int32_t i = 0; i < 4; ++i) in[i] = t + i < count ? hn::LoadU(d, rows + (t + i) * stride + c) : hn::Zero(d);
      const auto low0 = as_pairs(hn::InterleaveLower(d, in[0], in[1]));
      const auto low1 = as_pairs(hn::InterleaveLower(d, in[2], in[3]));
      const auto high0 = as_pairs(hn::InterleaveUpper(d, in[0], in[1]));
      const auto high1 = as_pairs(hn::InterleaveUpper(d, in[2], in[3]));
      float* to = columns + c * kTileTokens + t;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, low0, low1)), d, to);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, low0, low1)), d, to + kTileTokens);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, high0, high1)), d, to + 2 * kTileTokens);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, high0, high1)), d, to + 3 * kTileTokens);
    }
  }
#endif
}

// k, v: the slice's own rows from its start, `stride` floats apart; `count` of them matter.
void RunOwnRows(const PoolBlock& b, const float* k, const float* v, int64_t stride, int32_t count, PoolState state) {
  const int32_t dim = b.own.head_dim;
  std::fill_n(b.side.rho, kTileTokens, 0.0f);
  for (int32_t tile = 0; tile * kTileTokens < count; ++tile) {
    const int64_t first = int64_t{tile} * kTileTokens * stride;
    const int32_t rows = std::min(kTileTokens, count - tile * kTileTokens);
    transpose_rows(k + first, stride, rows, dim, b.own.k_tile);
    for (int32_t t = 0; t < rows; ++t) {
      std::copy_n(v + first + t * stride, dim, b.own.v_tile + t * b.own.dim_stride);
      b.own_norms[t] = kv::norm_up(k + first + t * stride, dim);
    }
    run_float_tile(
        b, b.own, tile,
        [&](int32_t pair, int32_t i, V* other) {
          const TileTag d;
          return *other = hn::Mul(hn::Set(d, b.own_factor[pair]), hn::Load(d, b.own_norms + i));
        },
        state);
  }
}

// Whether this machine reads certified records of `head_dim` in fragment order.
bool ReadsFragments(int32_t head_dim) {
  return HWY_TARGET != HWY_SCALAR && kv::has_fragment_order(head_dim);
}

// Stored tiles [begin, end).
void RunStoredTiles(const PoolBlock& b, int32_t begin, int32_t end, PoolState state) {
#if HWY_TARGET != HWY_SCALAR
  if (b.fragments) return run_fragments(b, begin, end, state);
#endif
  for (int32_t tile = begin; tile < end; ++tile) run_decoded_tile(b, tile, state);
}

void TransformQuery(const kv::RowTransform& t, const float* row, float* out) {
  transform_row(t, RowRole::kQuery, row, out);
}

void RotateBack(const float* signs, float* x, int32_t head_dim) {
  rotate_row_back(signs, x, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(RunOwnRows);
HWY_EXPORT(RunStoredTiles);
HWY_EXPORT(ReadsFragments);
HWY_EXPORT(TransformQuery);
HWY_EXPORT(RotateBack);

namespace {

constexpr int32_t kSplitTiles = kSplitTokens / kTileTokens;
constexpr int32_t kBlockPairs = 48;

int32_t round_up(int32_t value, int32_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
int32_t tiles_of(int32_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens;
}

// Some rows of one sequence and one KV head.
struct Item {
  int32_t sequence;
  int32_t first_row;  // of the batch
  int32_t rows;
  int32_t kv_head;
  int32_t stored;     // tokens before the slice
  int32_t first_own;  // of row 0, from the slice's start
  int32_t splits() const { return (stored + kSplitTokens - 1) / kSplitTokens; }
};

struct Problem {
  int32_t layer;
  const BatchView& batch;
  const AttentionShape& shape;
  ConstTensor qkv;
  const PagedKvView& cache;
  const kv::MeterView& meter;
  Tensor out;
  int32_t group() const { return shape.num_heads / shape.num_kv_heads; }
  bool fragments() const {
    return cache.format == KvFormat::kCertified && HWY_DYNAMIC_DISPATCH(ReadsFragments)(shape.head_dim);
  }
  int32_t dim_stride() const { return round_up(shape.head_dim, kTileTokens); }
  int32_t acc_stride() const { return fragments() ? 4 * shape.head_dim : dim_stride(); }
  const float* own(const Item& item, int32_t first_head, int32_t row) const {  // K (V) row of the slice
    return qkv.f32() + (item.first_row - item.first_own + row) * qkv.row_stride + first_head * shape.head_dim;
  }
  int32_t head(const Item& item, int32_t pair) const { return item.kv_head * group() + pair % group(); }
  int32_t row(const Item& item, int32_t pair) const { return item.first_row + pair / group(); }
};

std::vector<Item> make_items(const Problem& problem) {
  const BatchView& batch = problem.batch;
  const int32_t block_rows = std::max(1, kBlockPairs / problem.group());
  std::vector<Item> items;
  for (int32_t s = 0; s < batch.num_sequences; ++s) {
    const int32_t begin = batch.first_row[s], end = batch.first_row[s + 1];
    for (int32_t row = begin; row < end; row += block_rows) {
      for (int32_t h = 0; h < problem.shape.num_kv_heads; ++h) {
        items.push_back({s, row, std::min(block_rows, end - row), h, batch.positions[begin], row - begin});
      }
    }
  }
  return items;
}

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

PoolState take_state(Carver& carver, int32_t pairs, int32_t acc_stride) {
  PoolState state{};
  state.max = carver.take(pairs);
  state.sums = carver.take(int64_t{pairs} * kPairSumFloats);
  state.acc = carver.take(int64_t{pairs} * acc_stride);
  return state;
}

void clear(const PoolState& state, int32_t pairs, int32_t acc_stride) {
  std::fill_n(state.max, pairs, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sums, int64_t{pairs} * kPairSumFloats, 0.0f);
  std::fill_n(state.acc, int64_t{pairs} * acc_stride, 0.0f);
}

// Everything of one item but its states.
struct Work {
  PoolBlock block;
  float *q, *q_pool, *factor, *own_factor, *q_fragments;
  uint8_t* metered;
};

Work carve(const Problem& problem, int32_t pairs, Carver& carver) {
  const int32_t stride = problem.dim_stride();
  Work w{};
  PoolBlock& b = w.block;
  w.q = carver.take(int64_t{pairs} * stride);
  w.q_pool = carver.take(int64_t{pairs} * stride);
  w.q_fragments = carver.take(int64_t{pairs} * 2 * stride);
  w.factor = carver.take(pairs);
  w.own_factor = carver.take(pairs);
  w.metered = reinterpret_cast<uint8_t*>(carver.take(pairs));
  b.own.k_tile = b.stored.k_tile = carver.take(int64_t{stride} * kTileTokens);
  b.own.v_tile = b.stored.v_tile = carver.take(int64_t{stride} * kTileTokens);
  b.own.probs = b.stored.probs = carver.take(int64_t{pairs} * kTileTokens);
  b.own.decay = b.stored.decay = carver.take(pairs);
  for (float** piece : {&b.side.masked, &b.side.scale, &b.side.witness, &b.side.value_scale, &b.side.rho}) {
    *piece = carver.take(kStepTokens);
  }
  b.scores = carver.take(int64_t{pairs} * kStepTokens);
  b.own_norms = carver.take(kTileTokens);
  return w;
}

// The query of one pair in each form the block needs.
void load_query(const Problem& problem, const Item& item, int32_t pair, const kv::RowTransform& t, Work& w) {
  const int32_t dim = problem.shape.head_dim, stride = problem.dim_stride();
  const float* from =
      problem.qkv.f32() + problem.row(item, pair) * problem.qkv.row_stride + problem.head(item, pair) * dim;
  float *q = w.q + int64_t{pair} * stride, *pool_q = w.q_pool + int64_t{pair} * stride;
  const float scale = w.block.softmax_scale;
  for (int32_t c = 0; c < dim; ++c) q[c] = from[c] * scale;
  w.own_factor[pair] = kv::bypass_radius(scale, kv::norm_up(from, dim), dim);
  if (item.stored == 0) return;
  HWY_DYNAMIC_DISPATCH(TransformQuery)(t, from, pool_q);
  w.factor[pair] = kv::witness_factor(scale, kv::norm_up(pool_q, dim), kv::transform_margins(t));
  if (w.block.fragments) {
    float* to = w.q_fragments + int64_t{pair} * 2 * dim;
    for (int32_t c = 0; c < dim; c += 4) {
      std::copy_n(pool_q + c, 4, to + 2 * c);
      std::copy_n(pool_q + c, 4, to + 2 * c + 4);
    }
  } else {
    for (int32_t c = 0; c < dim; ++c) pool_q[c] *= scale;
  }
}

Work make_work(const Problem& problem, const Item& item, Carver& carver) {
  const int32_t group = problem.group(), pairs = item.rows * group;
  Work w = carve(problem, pairs, carver);
  PoolBlock& b = w.block;
  b.softmax_scale = 1.0f / std::sqrt(static_cast<float>(problem.shape.head_dim));
  b.stored_tokens = item.stored;
  b.acc_stride = problem.acc_stride();
  b.fragments = problem.fragments();
  for (AttentionBlock* a : {&b.stored, &b.own}) {
    a->cache = &problem.cache;
    a->layer = problem.layer;
    a->pages = problem.batch.pages_of(item.sequence);
    a->kv_head = item.kv_head;
    a->head_dim = problem.shape.head_dim;
    a->dim_stride = problem.dim_stride();
    a->pairs = pairs;
  }
  b.own.first_position = item.first_own;
  b.own.group = group;
  b.own.q = w.q;
  b.stored.first_position = item.stored - 1;  // every row sees all of them
  b.stored.group = pairs;
  b.stored.q = w.q_pool;
  std::fill_n(b.own.v_tile, problem.dim_stride() * kTileTokens, 0.0f);
  const kv::RowTransform t = problem.cache.transform(problem.layer, item.kv_head);
  for (int32_t pair = 0; pair < pairs; ++pair) {
    load_query(problem, item, pair, t, w);
    w.metered[pair] = problem.meter.num_metered > 0 && problem.meter.cell_of_row[problem.row(item, pair)] >= 0;
  }
  b.metered = w.metered;
  b.factor = w.factor;
  b.own_factor = w.own_factor;
  b.q_fragments = w.q_fragments;
  return w;
}

void run_split(const PoolBlock& b, int32_t split, const PoolState& state) {
  clear(state, b.stored.pairs, b.acc_stride);
  const int32_t end = std::min((split + 1) * kSplitTiles, tiles_of(b.stored_tokens));
  HWY_DYNAMIC_DISPATCH(RunStoredTiles)(b, split * kSplitTiles, end, state);
}

// total = total merged with the next split.
void merge_splits(const PoolState& total, const PoolState& next, int32_t pairs, int32_t acc_stride) {
  for (int32_t pair = 0; pair < pairs; ++pair) {
    const float max = std::max(total.max[pair], next.max[pair]);
    const float a = std::exp(total.max[pair] - max), b = std::exp(next.max[pair] - max);
    total.max[pair] = max;
    float* sums = total.sums + pair * kPairSumFloats;
    const float* from = next.sums + pair * kPairSumFloats;
    for (int32_t i = 0; i < kPairSumFloats; ++i) {
      const bool largest = i / 16 == kRadius || i / 16 == kOtherRadius;
      sums[i] = largest ? std::max(sums[i], from[i]) : sums[i] * a + from[i] * b;
    }
    float* acc = total.acc + int64_t{pair} * acc_stride;
    const float* next_acc = next.acc + int64_t{pair} * acc_stride;
    for (int32_t c = 0; c < acc_stride; ++c) acc[c] = acc[c] * a + next_acc[c] * b;
  }
}

float lane_sum(const float* sums, PairSum which) {
  float total = 0;
  for (int32_t i = 0; i < 16; ++i) total += sums[which * 16 + i];
  return total;
}
float lane_max(const float* sums, PairSum which) {
  return *std::max_element(sums + which * 16, sums + which * 16 + 16);
}

kv::MeterSums<float> meter_sums(const PoolState& state, int32_t pair, bool other) {
  const float* sums = state.sums + pair * kPairSumFloats;
  kv::MeterSums<float> result;
  result.logit_max = state.max[pair];
  result.weight = lane_sum(sums, kWeight);
  result.b1 = lane_sum(sums, other ? kOtherB1 : kB1);
  result.b2 = lane_sum(sums, other ? kOtherB2 : kB2);
  result.radius_max = lane_max(sums, other ? kOtherRadius : kRadius);
  result.value_error = lane_sum(sums, kValueError);
  return result;
}

// The stored part of a pair's output, in the model's channels, not normalised.
void stored_output(const PoolBlock& b, const PoolState& state, int32_t pair, float* out) {
  const int32_t dim = b.stored.head_dim;
  const float* acc = state.acc + int64_t{pair} * b.acc_stride;
  for (int32_t c = 0; c < dim; ++c) {
    if (!b.fragments) {
      out[c] = acc[c];
      continue;
    }
    const int32_t block = c / 32, row = c % 8, quarter = c % 32 / 8;
    const float* sums = acc + (block * 8 + row) * 16 + quarter * 4;
    out[c] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  const float* signs = b.stored.cache->tables.signs;
  if (signs != nullptr) HWY_DYNAMIC_DISPATCH(RotateBack)(signs, out, dim);
}

// Largest |v| of the stored tokens, rounded down. A NaN row counts as the largest number.
float stored_value_norm(const Problem& problem, const Item& item) {
  const uint16_t* norms = problem.cache.value_norms(problem.layer, item.kv_head);
  const int32_t* pages = problem.batch.pages_of(item.sequence);
  uint16_t largest = 0;
  for (int32_t i = 0; i * problem.cache.page_tokens < item.stored; ++i) largest = std::max(largest, norms[pages[i]]);
  return kv::half_to_float(largest);
}

void store_cell(const Problem& problem, const Item& item, int32_t pair, const PoolState& stored, const PoolState& own,
                float stored_norm) {
  const int32_t index = problem.meter.cell_of_row[problem.row(item, pair)];
  const int32_t own_tokens = item.first_own + pair / problem.group() + 1;
  kv::MeterCell cell;
  cell.certain = meter_sums(own, pair, false);
  cell.conditional = cell.certain;
  if (item.stored > 0) {
    const kv::MeterSums<float> certain = meter_sums(stored, pair, false);
    cell.conditional = kv::merge(certain, cell.certain);
    cell.certain = cell.conditional;
  }
  cell.value_norm_low = stored_norm;  // own rows can only raise it
  cell.compressed_tokens = item.stored;
  cell.serial_terms = 2 * kSplitTiles + 2 * item.splits() + 2 * tiles_of(own_tokens) + 16;
  problem.meter.cells[int64_t{index} * problem.meter.num_heads + problem.head(item, pair)] = cell;
}

void finish(const Problem& problem, const Item& item, const PoolBlock& b, const PoolState& stored,
            const PoolState& own) {
  const int32_t dim = problem.shape.head_dim;
  const float stored_norm = item.stored > 0 && problem.meter.num_metered > 0 ? stored_value_norm(problem, item) : 0.0f;
  float row[kv::kMaxHeadDim];
  for (int32_t pair = 0; pair < b.own.pairs; ++pair) {
    float* to = problem.out.f32() + problem.row(item, pair) * problem.out.row_stride + problem.head(item, pair) * dim;
    const float* own_acc = own.acc + int64_t{pair} * b.own.dim_stride;
    const float own_weight = lane_sum(own.sums + pair * kPairSumFloats, kWeight);
    if (item.stored == 0) {
      const float inverse = 1.0f / own_weight;
      for (int32_t c = 0; c < dim; ++c) to[c] = own_acc[c] * inverse;
    } else {
      const float max = std::max(stored.max[pair], own.max[pair]);
      const float a = std::exp(stored.max[pair] - max), e = std::exp(own.max[pair] - max);
      const float inverse = 1.0f / (lane_sum(stored.sums + pair * kPairSumFloats, kWeight) * a + own_weight * e);
      stored_output(b, stored, pair, row);
      for (int32_t c = 0; c < dim; ++c) to[c] = (row[c] * a + own_acc[c] * e) * inverse;
    }
    if (b.metered[pair] != 0) store_cell(problem, item, pair, stored, own, stored_norm);
  }
}

void run_own(const Problem& problem, const Item& item, const PoolBlock& b, const PoolState& own) {
  clear(own, b.own.pairs, b.own.dim_stride);
  const int32_t heads = problem.shape.num_heads, kv_heads = problem.shape.num_kv_heads;
  HWY_DYNAMIC_DISPATCH(RunOwnRows)
  (b, problem.own(item, heads + item.kv_head, 0), problem.own(item, heads + kv_heads + item.kv_head, 0),
   problem.qkv.row_stride, item.first_own + item.rows, own);
}

size_t item_floats(const Problem& problem, int32_t pairs) {
  Carver carver(nullptr);
  carve(problem, pairs, carver);
  for (int32_t stride : {problem.dim_stride(), problem.acc_stride(), problem.acc_stride()}) {
    take_state(carver, pairs, stride);
  }
  return carver.taken();
}

void attend_item(const Problem& problem, const Item& item, float* memory) {
  Carver carver(memory);
  const Work w = make_work(problem, item, carver);
  const int32_t pairs = w.block.own.pairs;
  const PoolState own = take_state(carver, pairs, problem.dim_stride());
  const PoolState total = take_state(carver, pairs, problem.acc_stride());
  const PoolState next = take_state(carver, pairs, problem.acc_stride());
  for (int32_t split = 0; split < item.splits(); ++split) {
    run_split(w.block, split, split == 0 ? total : next);
    if (split > 0) merge_splits(total, next, pairs, problem.acc_stride());
  }
  run_own(problem, item, w.block, own);
  finish(problem, item, w.block, total, own);
}

// Few long items of one row: their splits become tasks of their own, merged afterwards in order.
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
    Carver carver(scratch.floats(thread, item_floats(problem, pairs)));
    const Work w = make_work(problem, items[part.item], carver);
    run_split(w.block, part.split, state_of(static_cast<size_t>(p)));
  });
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const Item& item = items[static_cast<size_t>(i)];
    Carver carver(scratch.floats(thread, item_floats(problem, pairs)));
    const Work w = make_work(problem, item, carver);
    const PoolState own = take_state(carver, pairs, problem.dim_stride());
    const size_t first = first_part[static_cast<size_t>(i)];
    for (int32_t split = 1; split < item.splits(); ++split) {
      merge_splits(state_of(first), state_of(first + static_cast<size_t>(split)), pairs, problem.acc_stride());
    }
    run_own(problem, item, w.block, own);
    finish(problem, item, w.block, item.splits() > 0 ? state_of(first) : own, own);
  });
}

}  // namespace

void cpu_pool_attention(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch,
                        const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache,
                        const kv::MeterView& meter, Tensor out) {
  const Problem problem{layer, batch, shape, qkv, cache, meter, out};
  const std::vector<Item> items = make_items(problem);
  const bool decode_only = batch.num_tokens == batch.num_sequences;
  const bool few = items.size() < 4 * static_cast<size_t>(pool.num_threads());
  if (decode_only && few && batch.max_context > kSplitTokens && pool.num_threads() > 1) {
    return attend_by_splits(pool, scratch, problem, items);
  }
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const Item& item = items[static_cast<size_t>(i)];
    attend_item(problem, item, scratch.floats(thread, item_floats(problem, item.rows * problem.group())));
  });
}

void cpu_fold_meters(ThreadPool& pool, int32_t layer, const kv::MeterView& meter) {
  const int64_t count = int64_t{meter.num_metered} * meter.num_heads;
  constexpr int64_t kCellsPerTask = 16;
  pool.parallel_for((count + kCellsPerTask - 1) / kCellsPerTask, [&](int64_t task, int) {
    for (int64_t i = task * kCellsPerTask; i < std::min(count, (task + 1) * kCellsPerTask); ++i) {
      const kv::MeteredRow& row = meter.rows[i / meter.num_heads];
      meter.verdicts[i] = kv::judge_cell(meter.cells[i], meter.thresholds[row.sequence], meter.bound, meter.radius);
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    const kv::MeteredRow& row = meter.rows[i / meter.num_heads];
    const int32_t head = static_cast<int32_t>(i % meter.num_heads);
    kv::tally_cell(meter.verdicts[i], row.phase, layer, meter.first_head + head, row.position,
                   meter.sequences[row.sequence], meter.heads[int64_t{layer} * meter.num_heads + head]);
  }
}

}  // namespace assay
#endif  // HWY_ONCE
