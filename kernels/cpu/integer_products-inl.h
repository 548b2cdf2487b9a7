// Products of attention over certified payloads in integers, four bytes at a time (VNNI). Included once per Highway
// target; only AVX-512 has it.
//
// A float operand x (a query, the weights of a step) becomes x = scale * (65536 h + 256 m + l) with signed bytes h, m,
// l, scale = max|x| / 8,355,000: off by at most 1.5 scale + 2^-23 |x|. Sums of byte products are exact in 32 bits; the
// payload's bias of 128 is taken out in the integers. Three sums are then put together in float. For a query the whole
// error is below 2^-23 (1.6 sqrt(d) + 8) |q'| |k^'|, inside dot_margin(2 d); for weights it is added to the value
// error.
#if defined(ASSAY_KERNELS_CPU_INTEGER_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_INTEGER_PRODUCTS_INL_H_
#undef ASSAY_KERNELS_CPU_INTEGER_PRODUCTS_INL_H_
#else
#define ASSAY_KERNELS_CPU_INTEGER_PRODUCTS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/pool_softmax-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Int = hn::Vec<hn::RebindToSigned<TileTag>>;
constexpr float kLargestOperand = 8355000.0f;  // below 127 x 65536 + 127 x 256 + 127
constexpr float kSmallestOperand = 1e-30f;     // largest elements below it count as zeros

inline bool has_integer_products() {
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has;
}

// sum += four unsigned bytes x four signed bytes, per lane. In assembler: the instruction set is asked for at run time.
HWY_INLINE Int dot_quads(Int sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(unsigned_bytes), "vm"(signed_bytes));
  return sum;
}
HWY_INLINE __m512i load_bytes(const void* from) {
  return _mm512_loadu_si512(from);
}
// -128 x the sum of four bytes, per lane, added.
HWY_INLINE Int take_out_bias(Int sum, __m512i signed_bytes) {
  const hn::RebindToSigned<TileTag> d;
  return hn::Sub(sum, dot_quads(hn::Zero(d), _mm512_set1_epi8(static_cast<char>(0x80)), signed_bytes));
}

// One operand's unit, and what it is divided by.
struct OperandScale {
  float scale, inverse;
};
HWY_INLINE OperandScale operand_scale(float largest) {
  if (!(largest >= kSmallestOperand)) return {0.0f, 0.0f};
  return {largest * (1.0f / kLargestOperand), kLargestOperand / largest};
}

// Sixteen floats as three times sixteen signed bytes.
HWY_INLINE void split_digits(V x, float inverse, __m128i (&digits)[kDigits]) {
  const TileTag d;
  const hn::RebindToSigned<TileTag> di;
  const auto half = hn::Set(di, 128), byte = hn::Set(di, 255);
  auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, inverse)));
  for (int i = kDigits - 1; i >= 0; --i) {
    const auto low = hn::Sub(hn::And(hn::Add(n, half), byte), half);
    digits[i] = _mm512_cvtepi32_epi8(low.raw);
    n = hn::ShiftRight<8>(hn::Sub(n, low));
  }
}

// 65536 h + 256 m + l.
HWY_INLINE V join_digits(const Int (&sums)[kDigits]) {
  const TileTag d;
  const auto low = hn::MulAdd(hn::ConvertTo(d, sums[1]), hn::Set(d, 256.0f), hn::ConvertTo(d, sums[2]));
  return hn::MulAdd(hn::ConvertTo(d, sums[0]), hn::Set(d, 65536.0f), low);
}

// The query of one pair as operands of the K payload: q[dim] -> digits, start. Returns its unit.
inline float load_integer_query(const float* q, int32_t dim, int8_t* digits, int32_t* start) {
  const TileTag d;
  const hn::RebindToSigned<TileTag> di;
  auto largest = hn::Zero(d);
  for (int32_t c = 0; c < dim; c += kLanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, q + c)));
  const OperandScale unit = operand_scale(hn::GetLane(hn::MaxOfLanes(d, largest)));
  const __m512i order = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  Int sums[kDigits] = {hn::Zero(di), hn::Zero(di), hn::Zero(di)};
  for (int32_t block = 0; block < dim / 32; ++block) {
    __m128i low[kDigits], high[kDigits];
    split_digits(hn::LoadU(d, q + block * 32), unit.inverse, low);
    split_digits(hn::LoadU(d, q + block * 32 + 16), unit.inverse, high);
    for (int i = 0; i < kDigits; ++i) {
      const __m512i both = _mm512_castsi256_si512(_mm256_set_m128i(high[i], low[i]));
      const __m512i operand = _mm512_permutexvar_epi32(order, both);
      _mm512_storeu_si512(digits + (block * kDigits + i) * 64, operand);
      sums[i] = take_out_bias(sums[i], operand);
    }
  }
  for (int i = 0; i < kDigits; ++i) hn::StoreU(sums[i], di, start + i * 16);
  return unit.scale;
}

// rows[8]: lanes hold sums of token r (even lanes) and r + 8 (odd lanes) -> sixteen scores in side order.
HWY_INLINE V add_token_lanes(const V (&rows)[8]) {
  const TileTag d;
  const hn::Repartition<double, TileTag> d64;
  V twos[4];  // blocks of [2j, 2j + 8, 2j + 1, 2j + 9]
  for (int j = 0; j < 4; ++j) {
    const auto a = hn::BitCast(d64, rows[2 * j]), b = hn::BitCast(d64, rows[2 * j + 1]);
    twos[j] = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a, b)), hn::BitCast(d, hn::InterleaveUpper(d64, a, b)));
  }
  const auto halves = [&](int j, int k) {
    return hn::Add(hn::ConcatLowerLower(d, twos[k], twos[j]), hn::ConcatUpperUpper(d, twos[k], twos[j]));
  };
  const V a = halves(0, 2), b = halves(1, 3);
  const auto blocks =
      hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
  return V{_mm512_permute_ps(blocks.raw, _MM_SHUFFLE(3, 1, 2, 0))};
}

// Raw scores of P pairs with the sixteen tokens of a tile. `between` is called after each row.
template <int P, class Between>
HWY_INLINE void score_integer_tile(const PoolBlock& b, const uint8_t* k, int32_t pair, float* scores,
                                   const Between& between) {
  const TileTag d;
  const hn::RebindToSigned<TileTag> di;
  const int32_t blocks = b.stored.head_dim / 32;
  const int8_t* digits = b.terms.q_digits + static_cast<int64_t>(pair) * blocks * kDigits * 64;
  const int32_t* start = b.terms.q_start + pair * kDigits * 16;
  V rows[P][8];
  for (int r = 0; r < 8; ++r) {
    Int sums[P][kDigits];
    for (int p = 0; p < P; ++p) {
      for (int i = 0; i < kDigits; ++i) sums[p][i] = hn::Load(di, start + (p * kDigits + i) * 16);
    }
    for (int32_t block = 0; block < blocks; ++block) {
      const __m512i bytes = load_bytes(k + block * 512 + r * 64);
      for (int p = 0; p < P; ++p) {
        for (int i = 0; i < kDigits; ++i) {
          const int8_t* q = digits + ((p * blocks + block) * kDigits + i) * 64;
          sums[p][i] = dot_quads(sums[p][i], bytes, load_bytes(q));
        }
      }
    }
    for (int p = 0; p < P; ++p) rows[p][r] = join_digits(sums[p]);
    between();
  }
  for (int p = 0; p < P; ++p) hn::Store(add_token_lanes(rows[p]), d, scores + p * kMaxStepTokens);
}

// b.weights of P pairs as operands of V payloads.
template <int P>
struct IntegerWeights {
  float scale[P];
  Int start[P][kDigits];

  // Adds to the value error of each pair what rounding its weights can do.
  HWY_INLINE IntegerWeights(const PoolBlock& b, int32_t tiles) {
    const TileTag d;
    const hn::RebindToSigned<TileTag> di;
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    for (int p = 0; p < P; ++p) {
      const float* weights = b.weights + p * kMaxStepTokens;
      auto most = hn::Zero(d);
      for (int32_t tile = 0; tile < tiles; ++tile) most = hn::Max(most, hn::Load(d, weights + tile * kTileTokens));
      largest[p] = hn::GetLane(hn::MaxOfLanes(d, most));
      const OperandScale unit = operand_scale(largest[p]);
      scale[p] = unit.scale;
      for (int i = 0; i < kDigits; ++i) start[p][i] = hn::Zero(di);
      for (int32_t tile = 0; tile < tiles; ++tile) {
        __m128i digits[kDigits];
        split_digits(hn::Load(d, weights + tile * kTileTokens), unit.inverse, digits);
        for (int i = 0; i < kDigits; ++i) {
          const __m512i operand = _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(digits[i]));
          _mm512_storeu_si512(b.weight_digits + ((p * kMaxStepTiles + tile) * kDigits + i) * 64, operand);
          start[p][i] = take_out_bias(start[p][i], operand);
        }
      }
    }
  }
  float largest[P];
};

// Most that rounding the weights of one pair and `channels` channels moves the output, tokens x 1.5 units x |n_t|.
HWY_INLINE float weight_rounding_error(float largest, int32_t tokens, int32_t channels) {
  const float unit = std::max(1.75f * largest * (1.0f / kLargestOperand), std::min(largest, kSmallestOperand));
  return unit * static_cast<float>(tokens) * 128.0f * std::sqrt(static_cast<float>(channels));
}

// Adds the weighted sums of a block of 32 channels to the accumulators of P pairs, over `tiles` tiles. `between` is
// called after each row.
template <int P, class Between>
HWY_INLINE void accumulate_integer_block(const PoolBlock& b, const IntegerWeights<P>& w,
                                         const uint8_t* const* v_payloads, int32_t tiles, int32_t pair, int32_t block,
                                         float* acc, const Between& between) {
  const TileTag d;
  for (int row = 0; row < 8; ++row) {
    Int sums[P][kDigits];
    for (int p = 0; p < P; ++p) {
      for (int i = 0; i < kDigits; ++i) sums[p][i] = w.start[p][i];
    }
    for (int32_t tile = 0; tile < tiles; ++tile) {
      const __m512i bytes = load_bytes(v_payloads[tile] + block * 512 + row * 64);
      for (int p = 0; p < P; ++p) {
        for (int i = 0; i < kDigits; ++i) {
          const int8_t* digits = b.weight_digits + ((p * kMaxStepTiles + tile) * kDigits + i) * 64;
          sums[p][i] = dot_quads(sums[p][i], bytes, load_bytes(digits));
        }
      }
    }
    for (int p = 0; p < P; ++p) {
      float* to = acc + static_cast<int64_t>(pair + p) * b.acc_stride + (block * 8 + row) * 16;
      const auto old = hn::Mul(hn::Load(d, to), hn::Set(d, b.stored.decay[pair + p]));
      hn::Store(hn::MulAdd(join_digits(sums[p]), hn::Set(d, w.scale[p]), old), d, to);
    }
    between();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif  // HWY_AVX3

#endif
