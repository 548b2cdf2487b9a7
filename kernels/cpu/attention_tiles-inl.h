// Products of attention over one tile of 16 tokens held as floats: scores with K, weighted sums of V. A pair's arithmetic
// order is fixed. Included once per Highway target.
#if defined(ASSAY_KERNELS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_ATTENTION_TILES_INL_H_
#undef ASSAY_KERNELS_CPU_ATTENTION_TILES_INL_H_
#else
#define ASSAY_KERNELS_CPU_ATTENTION_TILES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attention_state.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::CappedTag<float, kTileTokens>;
constexpr int kTileVectors = kTileTokens / static_cast<int>(hn::MaxLanes(TileTag()));  // vectors in one tile of scores
constexpr int kLanes = static_cast<int>(hn::MaxLanes(TileTag()));
#if HWY_TARGET <= HWY_AVX3
constexpr int kAccPairs = 4;
#else
constexpr int kAccPairs = 2;
#endif
constexpr int kAccVectors = 4;

// Scores of P pairs with the 16 tokens: even and odd channels in two sums, added at the end.
template <int P>
HWY_INLINE void score_pairs(const AttentionBlock& b, int32_t pair) {
  const TileTag d;
  hn::Vec<TileTag> even[P][kTileVectors], odd[P][kTileVectors];
  for (int p = 0; p < P; ++p) {
    for (int i = 0; i < kTileVectors; ++i) even[p][i] = odd[p][i] = hn::Zero(d);
  }
  const float* q = b.q + static_cast<int64_t>(pair) * b.dim_stride;
  for (int32_t c = 0; c < b.head_dim; c += 2) {
    const float* k = b.k_tile + c * kTileTokens;
    for (int i = 0; i < kTileVectors; ++i) {
      const auto k0 = hn::Load(d, k + i * kLanes), k1 = hn::Load(d, k + kTileTokens + i * kLanes);
      for (int p = 0; p < P; ++p) {
        even[p][i] = hn::MulAdd(hn::Set(d, q[p * b.dim_stride + c]), k0, even[p][i]);
        odd[p][i] = hn::MulAdd(hn::Set(d, q[p * b.dim_stride + c + 1]), k1, odd[p][i]);
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int i = 0; i < kTileVectors; ++i) {
      hn::Store(hn::Add(even[p][i], odd[p][i]), d, b.probs + (pair + p) * kTileTokens + i * kLanes);
    }
  }
}

inline void score_tile(const AttentionBlock& b) {
  int32_t pair = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; pair + 8 <= b.pairs; pair += 8) score_pairs<8>(b, pair);
  for (; pair + 4 <= b.pairs; pair += 4) score_pairs<4>(b, pair);
#endif
  for (; pair + 2 <= b.pairs; pair += 2) score_pairs<2>(b, pair);
  for (; pair < b.pairs; ++pair) score_pairs<1>(b, pair);
}

// acc = acc * decay + probabilities x V for P pairs that see the same `visible` tokens, N vectors of channels.
template <int P, int N>
HWY_INLINE void accumulate_channels(const AttentionBlock& b, int32_t pair, int32_t visible, int32_t channel,
                                    float* acc) {
  const TileTag d;
  hn::Vec<TileTag> a[P][N];
  for (int p = 0; p < P; ++p) {
    const auto decay = hn::Set(d, b.decay[pair + p]);
    for (int n = 0; n < N; ++n) {
      a[p][n] = hn::Mul(hn::Load(d, acc + (pair + p) * b.dim_stride + channel + n * kLanes), decay);
    }
  }
  for (int32_t t = 0; t < visible; ++t) {
    hn::Vec<TileTag> v[N];
    for (int n = 0; n < N; ++n) v[n] = hn::Load(d, b.v_tile + t * b.dim_stride + channel + n * kLanes);
    for (int p = 0; p < P; ++p) {
      const auto weight = hn::Set(d, b.probs[(pair + p) * kTileTokens + t]);
      for (int n = 0; n < N; ++n) a[p][n] = hn::MulAdd(weight, v[n], a[p][n]);
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int n = 0; n < N; ++n) hn::Store(a[p][n], d, acc + (pair + p) * b.dim_stride + channel + n * kLanes);
  }
}

template <int P>
HWY_INLINE void accumulate_pairs(const AttentionBlock& b, int32_t pair, int32_t visible, float* acc) {
  int32_t channel = 0;
  for (; channel + kAccVectors * kLanes <= b.dim_stride; channel += kAccVectors * kLanes) {
    accumulate_channels<P, kAccVectors>(b, pair, visible, channel, acc);
  }
  for (; channel < b.dim_stride; channel += kLanes) accumulate_channels<P, 1>(b, pair, visible, channel, acc);
}

inline void accumulate_tile(const AttentionBlock& b, int32_t tile, float* acc) {
  for (int32_t pair = 0; pair < b.pairs;) {
    const int32_t visible = b.visible(pair, tile);
    if (pair + kAccPairs <= b.pairs && visible == b.visible(pair + kAccPairs - 1, tile)) {
      if (visible > 0) accumulate_pairs<kAccPairs>(b, pair, visible, acc);
      pair += kAccPairs;
    } else {
      if (visible > 0) accumulate_pairs<1>(b, pair, visible, acc);
      ++pair;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif
