// The running softmax of a compressed pool with its meter, and tiles of rows held as floats. Included once per Highway
// target.
#if defined(ASSAY_KERNELS_CPU_POOL_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_POOL_SOFTMAX_INL_H_
#undef ASSAY_KERNELS_CPU_POOL_SOFTMAX_INL_H_
#else
#define ASSAY_KERNELS_CPU_POOL_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/pool_attention_state.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using V = hn::Vec<TileTag>;
constexpr float kLargestExponent = 88.0f;  // e^88 is finite; its square is not, so larger radii still overflow

// Radii of some tokens: what the pool has, and the smaller of two where it has two.
struct Radii {
  V first, other;
};

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

// One step of softmax and meter for one pair: scores[tokens] become the weights relative to the new maximum.
// `radii(i)` gives the radii of tokens i..; they are ignored where a token is masked.
template <class RadiiOf>
HWY_INLINE float softmax_step(const StepSide& side, int32_t tokens, bool metered, bool two_radii, const RadiiOf& radii,
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
      hn::Store(p, d, scores + i);
      if (!metered) continue;
      const auto masked = hn::Lt(hn::Load(d, side.masked + i), zero);
      const Radii r = radii(i);
      lanes.add_radius(p, hn::IfThenZeroElse(masked, r.first), kB1, kB2, kRadius);
      if (two_radii) lanes.add_radius(p, hn::IfThenZeroElse(masked, r.other), kOtherB1, kOtherB2, kOtherRadius);
      lanes.sum[kValueError] = hn::MulAdd(p, hn::Load(d, side.rho + i), lanes.sum[kValueError]);
    }
    lanes.store(sums + lane);
  }
  return decay;
}

// Puts what one tile was given into the log: weights[16] and radii(i), at[i] the token of each, -1 = masked.
template <class RadiiOf>
inline void log_tile(const AttentionLogView& log, int32_t pair, const int32_t* at, const float* weights, float max,
                     const float* rho, const RadiiOf& radii) {
  const TileTag d;
  HWY_ALIGN float first[kTileTokens], other[kTileTokens];
  for (int32_t i = 0; i < kTileTokens; i += kLanes) {
    const Radii r = radii(i);
    hn::Store(r.first, d, first + i);
    hn::Store(r.other, d, other + i);
  }
  for (int32_t i = 0; i < kTileTokens; ++i) {
    if (at[i] < 0) continue;
    const int64_t to = int64_t{pair} * log.tokens + at[i];
    log.weight[to] = weights[i];
    log.max[to] = max;
    log.radius[to] = first[i];
    log.other[to] = other[i];
    log.rho[to] = rho[i];
  }
}

// Scores, softmax and sums of one tile that k_tile and v_tile of `a` hold. `radii(pair, i)`; rho is that of the block.
// `first_token`: of the tile, as the log numbers them.
template <class RadiiOf>
HWY_INLINE void run_float_tile(const PoolBlock& b, const AttentionBlock& a, int32_t tile, int32_t first_token,
                               const RadiiOf& radii, const PoolState& state) {
  HWY_ALIGN float masked[kTileTokens];
  StepSide side{};
  side.masked = masked;
  side.rho = b.side.rho;
  score_tile(a);
  for (int32_t pair = 0; pair < a.pairs; ++pair) {
    const int32_t visible = a.visible(pair, tile);
    if (visible <= 0) continue;
    for (int32_t t = 0; t < kTileTokens; ++t) masked[t] = t < visible ? 0.0f : -std::numeric_limits<float>::infinity();
    a.decay[pair] = softmax_step(
        side, kTileTokens, b.metered[pair] != 0, b.radius == kv::RadiusKind::kBoth,
        [&](int32_t i) { return radii(pair, i); }, a.probs + pair * kTileTokens, state.max + pair,
        state.sums + pair * kPairSumFloats);
    if (b.log == nullptr) continue;
    int32_t at[kTileTokens];
    for (int32_t t = 0; t < kTileTokens; ++t) at[t] = t < visible ? first_token + t : -1;
    log_tile(*b.log, pair, at, a.probs + pair * kTileTokens, state.max[pair], b.side.rho,
             [&](int32_t i) { return radii(pair, i); });
  }
  accumulate_tile(a, tile, state.acc);
}

// rows[16] of `dim` floats, `stride` apart, `count` of them there -> columns [dim][16], zeros for the rest.
inline void transpose_rows(const float* rows, int64_t stride, int32_t count, int32_t dim, float* columns) {
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

// kv::norm_up with vectors; dim is a multiple of 16.
HWY_INLINE float row_norm_up(const float* x, int32_t dim) {
  const TileTag d;
  auto sum = hn::Zero(d);
  for (int32_t i = 0; i < dim; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  return kv::norm_up_from_squares(hn::GetLane(hn::SumOfLanes(d, sum)), dim);
}

// One tile of exact rows: k, v [rows][dim] floats, `stride` apart, met by the model's own queries. The radius is that
// of the float product.
HWY_INLINE void run_exact_tile(const PoolBlock& b, const AttentionBlock& a, int32_t tile, int32_t first_token,
                               const float* k, const float* v, int64_t stride, int32_t rows, const PoolState& state) {
  transpose_rows(k, stride, rows, a.head_dim, a.k_tile);
  for (int32_t t = 0; t < rows; ++t) {
    std::copy_n(v + t * stride, a.head_dim, a.v_tile + t * a.dim_stride);
    b.own_norms[t] = row_norm_up(k + t * stride, a.head_dim);
  }
  run_float_tile(
      b, a, tile, first_token,
      [&](int32_t pair, int32_t i) {
        const TileTag d;
        const V radius = hn::Mul(hn::Set(d, b.terms.own_factor[pair]), hn::Load(d, b.own_norms + i));
        return Radii{radius, radius};
      },
      state);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif
