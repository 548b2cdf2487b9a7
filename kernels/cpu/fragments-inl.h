// Products of attention over certified records in fragment order (kernels/kv/fragment_order.h), bytes straight to
// floats in registers. Scores and weights of a tile are in value_side_index order. Included once per Highway target;
// a target without vectors has none of it.
#if defined(ASSAY_KERNELS_CPU_FRAGMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_FRAGMENTS_INL_H_
#undef ASSAY_KERNELS_CPU_FRAGMENTS_INL_H_
#else
#define ASSAY_KERNELS_CPU_FRAGMENTS_INL_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/pool_attention_state.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A piece is 16 bytes. Of K: 4 channels of token t, the same of t + 8, the next 4 channels of both. Of V: tokens 2j,
// 2j + 1, 2j + 8, 2j + 9 of channels r, r + 8, r + 16, r + 24 of a block of 32.
constexpr int kPieceVectors = 16 / kLanes;
constexpr int kTokenVectors = kLanes == 4 ? 2 : 1;  // sums that hold a token t and its t + 8
constexpr int kScoreRows = 4;
constexpr int kSumRows = 2;

HWY_INLINE hn::Vec<TileTag> levels(const uint8_t* bytes) {
  const TileTag d;
  const hn::Rebind<uint8_t, TileTag> d8;
  const hn::Rebind<int8_t, TileTag> di8;
  const hn::Rebind<int32_t, TileTag> d32;
  const auto signed_bytes = hn::BitCast(di8, hn::Xor(hn::LoadU(d8, bytes), hn::Set(d8, uint8_t{0x80})));
  return hn::ConvertTo(d, hn::PromoteTo(d32, signed_bytes));
}

// Sums of each block of 4 lanes of four vectors, side by side in the block.
HWY_INLINE hn::Vec<TileTag> add_quarters(hn::Vec<TileTag> a, hn::Vec<TileTag> b, hn::Vec<TileTag> c,
                                         hn::Vec<TileTag> e) {
  const TileTag d;
  const hn::Repartition<double, TileTag> d64;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const auto high = hn::InterleaveUpper(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  return hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
}

// sums[4][kTokenVectors]: partial sums of tokens row..row+3 and row+8..row+11 -> eight scores in side order.
HWY_INLINE void store_scores(const hn::Vec<TileTag> (&sums)[kScoreRows][kTokenVectors], float* scores) {
  HWY_ALIGN float block[16];
  const TileTag d;
  for (int v = 0; v < kTokenVectors; ++v) {
    hn::Store(add_quarters(sums[0][v], sums[1][v], sums[2][v], sums[3][v]), d, block + v * kLanes);
  }
  using Quarter = hn::CappedTag<float, 4>;
  const Quarter d4;
  const hn::Repartition<double, Quarter> d2;
  auto first = hn::Load(d4, block), second = hn::Load(d4, block + 4);
  if constexpr (kLanes == 16) {
    first = hn::Add(first, hn::Load(d4, block + 8));
    second = hn::Add(second, hn::Load(d4, block + 12));
  }
  const auto low = hn::InterleaveLower(d2, hn::BitCast(d2, first), hn::BitCast(d2, second));
  const auto high = hn::InterleaveUpper(d2, hn::BitCast(d2, first), hn::BitCast(d2, second));
  hn::Store(hn::BitCast(d4, low), d4, scores);
  hn::Store(hn::BitCast(d4, high), d4, scores + 4);
}

// Raw scores of P pairs with tokens row..row+3 and row+8..row+11 of a tile with K payload `k`. kGrouped: levels are
// multiplied by their own scales first (exactly: 11 and 8 bits), lane_scales [groups][8][16] as a piece lies.
template <int P, bool kGrouped>
HWY_INLINE void score_fragment_rows(const PoolBlock& b, const uint8_t* k, const float* lane_scales, int32_t pair,
                                    int row, float* scores) {
  const TileTag d;
  const int32_t dim = b.stored.head_dim, q_stride = 2 * dim;
  const float* q = b.terms.q_fragments + static_cast<int64_t>(pair) * q_stride;
  hn::Vec<TileTag> sums[P][kScoreRows][kTokenVectors];
  for (int p = 0; p < P; ++p) {
    for (auto& row_sums : sums[p]) {
      for (auto& sum : row_sums) sum = hn::Zero(d);
    }
  }
  for (int32_t piece = 0; piece < dim / 8; ++piece) {
    const int32_t block = piece / 4;
    const uint8_t* bytes = k + block * 512 + row * 64 + piece % 4 * 16;
    for (int v = 0; v < kPieceVectors; ++v) {
      hn::Vec<TileTag> n[kScoreRows];
      for (int r = 0; r < kScoreRows; ++r) {
        n[r] = levels(bytes + r * 64 + v * kLanes);
        if constexpr (kGrouped) {
          n[r] = hn::Mul(n[r], hn::Load(d, lane_scales + (block * 8 + row + r) * 16 + v * kLanes));
        }
      }
      for (int p = 0; p < P; ++p) {
        const auto query = hn::Load(d, q + p * q_stride + piece * 16 + v * kLanes);
        for (int r = 0; r < kScoreRows; ++r) {
          auto& sum = sums[p][r][v % kTokenVectors];
          sum = hn::MulAdd(query, n[r], sum);
        }
      }
    }
  }
  for (int p = 0; p < P; ++p) store_scores(sums[p], scores + p * kMaxStepTokens + row * 2);
}

// Adds b.weights x levels of rows row, row+1 of a block of 32 channels to the sums of P pairs, over `tiles` tiles.
template <int P>
HWY_INLINE void accumulate_fragment_rows(const PoolBlock& b, const uint8_t* const* v_payloads, int32_t tiles,
                                         int32_t pair, int32_t block, int row, float* acc) {
  const TileTag d;
  hn::Vec<TileTag> sums[P][kSumRows][kPieceVectors];
  float* to = acc + static_cast<int64_t>(pair) * b.acc_stride + (block * 8 + row) * 16;
  for (int p = 0; p < P; ++p) {
    const auto decay = hn::Set(d, b.stored.decay[pair + p]);
    for (int r = 0; r < kSumRows; ++r) {
      for (int v = 0; v < kPieceVectors; ++v) {
        sums[p][r][v] = hn::Mul(hn::Load(d, to + p * b.acc_stride + r * 16 + v * kLanes), decay);
      }
    }
  }
  for (int32_t tile = 0; tile < tiles; ++tile) {
    const uint8_t* bytes = v_payloads[tile] + block * 512 + row * 64;
    const float* weights = b.weights + tile * kTileTokens;
    for (int j = 0; j < 4; ++j) {
      hn::Vec<TileTag> weight[P];
      for (int p = 0; p < P; ++p) weight[p] = hn::LoadDup128(d, weights + p * kMaxStepTokens + 4 * j);
      for (int r = 0; r < kSumRows; ++r) {
        for (int v = 0; v < kPieceVectors; ++v) {
          const auto n = levels(bytes + r * 64 + j * 16 + v * kLanes);
          for (int p = 0; p < P; ++p) sums[p][r][v] = hn::MulAdd(weight[p], n, sums[p][r][v]);
        }
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int r = 0; r < kSumRows; ++r) {
      for (int v = 0; v < kPieceVectors; ++v) {
        hn::Store(sums[p][r][v], d, to + p * b.acc_stride + r * 16 + v * kLanes);
      }
    }
  }
}

// Calls body.template operator()<P>(pair) over all pairs, P at a time.
template <class Body>
HWY_INLINE void for_pair_groups(int32_t pairs, const Body& body) {
  int32_t pair = 0;
  for (; pair + kAccPairs <= pairs; pair += kAccPairs) body.template operator()<kAccPairs>(pair);
  if constexpr (kAccPairs > 2) {
    if (pair + 3 == pairs) {
      body.template operator()<3>(pair);
      pair += 3;
    }
    if (pair + 2 == pairs) {
      body.template operator()<2>(pair);
      pair += 2;
    }
  }
  for (; pair < pairs; ++pair) body.template operator()<1>(pair);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif  // HWY_SCALAR

#endif
