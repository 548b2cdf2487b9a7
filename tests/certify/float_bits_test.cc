// fp16, bf16 and e4m3 conversions for every input: all 65,536 halves, and every float through each rounding direction.
#include "kernels/kv/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"

// The loops over all floats are compiled for what the machine has; the functions under test are inlined into them.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ASSAY_WIDE __attribute__((target_clones("default", "avx2", "avx512f"), optimize("O3")))
#define ASSAY_FLOAT_STRIDE 1
#else
#define ASSAY_WIDE
#define ASSAY_FLOAT_STRIDE 61  // a sanitizer build looks at a sample: the plain build has all of them
#endif

namespace assay::kv {
namespace {

TEST(Half, EveryValueIsWhatItsBitsSay) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, static_cast<int>(exponent) - 25);
    if (exponent == 31) expected = mantissa == 0 ? INFINITY : NAN;
    if (bits & 0x8000) expected = -expected;
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(value, expected);
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
    EXPECT_EQ(half_nearest(value), bits);
    EXPECT_EQ(half_up(value), bits);
    EXPECT_EQ(half_down(value), bits);
  }
}

// Number of floats with bits in [first, last) that one of the three conversions sends anywhere but to the given halves.
ASSAY_WIDE uint32_t wrong_in_range(uint32_t first, uint32_t last, uint32_t down, uint32_t nearest, uint32_t up) {
  uint32_t wrong = 0;
  for (uint32_t bits = first; bits < last; bits += ASSAY_FLOAT_STRIDE) {
    const float x = float_from_bits(bits);
    wrong |= (half_down(x) ^ down) | (half_nearest(x) ^ nearest) | (half_up(x) ^ up);
  }
  return wrong;
}

// Floats strictly between two neighbouring halves of one sign, split at the midpoint (a tie goes to the even one).
void check_gap(uint32_t sign, uint32_t low, uint32_t high) {
  const uint32_t low_bits = float_bits(half_to_float(static_cast<uint16_t>(low)));
  const uint32_t high_bits = high == 0x7c00 ? 0x7f800000 : float_bits(half_to_float(static_cast<uint16_t>(high)));
  // 65,520 is the midpoint that to-nearest sees below infinity.
  const double top = high == 0x7c00 ? 65536.0 : half_to_float(static_cast<uint16_t>(high));
  const float middle = static_cast<float>((half_to_float(static_cast<uint16_t>(low)) + top) / 2);
  const uint32_t first_up = float_bits(middle) + (low % 2 == 0 ? 1 : 0);
  const uint32_t toward = sign | low, away = sign | high, s = sign << 16;
  const uint32_t down = sign ? away : toward, up = sign ? toward : away;
  ASSERT_EQ(wrong_in_range(s | (low_bits + 1), s | first_up, down, toward, up), 0u) << low << " sign " << sign;
  ASSERT_EQ(wrong_in_range(s | first_up, s | high_bits, down, away, up), 0u) << low << " sign " << sign;
}

TEST(Half, EveryFloatRoundsUpDownAndToNearest) {
  for (uint32_t sign : {0x0000u, 0x8000u}) {
    for (uint32_t low = 0; low < 0x7c00; ++low) {
      check_gap(sign, low, low + 1);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(half_up(INFINITY), 0x7c00);
  EXPECT_EQ(half_down(INFINITY), 0x7c00);
  EXPECT_EQ(half_nearest(-INFINITY), 0xfc00);
}

TEST(Half, EveryNanStaysOne) {
  for (uint32_t bits = 0x7f800001; bits < 0x80000000u; ++bits) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const float x = float_from_bits(bits | sign);
      const bool all =
          (half_up(x) & 0x7fff) > 0x7c00 && (half_down(x) & 0x7fff) > 0x7c00 && (half_nearest(x) & 0x7fff) > 0x7c00;
      if (!all) FAIL() << std::hex << (bits | sign);
    }
  }
}

// The room's two spellings of the same conversions agree (kernels/core/dtype.h is host only).
TEST(Half, AgreesWithTheHostConversions) {
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 97) {
    const float x = float_from_bits(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_EQ(half_nearest(x), f32_to_f16(x)) << std::hex << bits;
    ASSERT_EQ(bf16_nearest(x), f32_to_bf16(x)) << std::hex << bits;
  }
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (!std::isnan(f16_to_f32(half))) {
      ASSERT_EQ(half_to_float(half), f16_to_f32(half));
    }
    ASSERT_EQ(float_bits(bf16_to_float(half)), float_bits(bf16_to_f32(half)));
  }
}

double e4m3_value(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0 + mantissa, exponent - 10);
}

TEST(E4m3, EveryCodeAndEveryGapBetweenTwo) {
  for (int code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code)), e4m3_value(code));
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code | 0x80)), -e4m3_value(code));
    EXPECT_EQ(e4m3_saturate(static_cast<float>(e4m3_value(code))), code);
    if (code == 0x7e) break;
    const float middle = static_cast<float>((e4m3_value(code) + e4m3_value(code + 1)) / 2);
    EXPECT_EQ(e4m3_saturate(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(e4m3_saturate(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(e4m3_saturate(-std::nextafter(middle, 1e9f)), (code + 1) | 0x80);
  }
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)) && std::isnan(e4m3_to_float(0xff)));
}

TEST(E4m3, SaturatesAt448AndKeepsNan) {
  for (float x : {448.0f, 449.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(e4m3_saturate(x), 0x7e);
    EXPECT_EQ(e4m3_saturate(-x), 0xfe);
  }
  EXPECT_EQ(e4m3_saturate(NAN) & 0x7f, 0x7f);
}

TEST(E4m3, NearestForFloatsOfEverySize) {
  for (uint64_t bits = 0; bits < 0x43e00000u; bits += 1013) {  // up to 448
    const float x = float_from_bits(static_cast<uint32_t>(bits));
    const double error = std::fabs(e4m3_to_float(e4m3_saturate(x)) - static_cast<double>(x));
    const int code = e4m3_saturate(x);
    if (code > 0) {
      ASSERT_LE(error, std::fabs(e4m3_value(code - 1) - x));
    }
    if (code < 0x7e) {
      ASSERT_LE(error, std::fabs(e4m3_value(code + 1) - x));
    }
  }
}

TEST(RoundToInteger, TiesToEven) {
  for (int n = -1000; n <= 1000; ++n) {
    const float x = static_cast<float>(n);
    EXPECT_EQ(round_to_integer(x), x);
    EXPECT_EQ(round_to_integer(x + 0.5f), n % 2 == 0 ? x : x + 1);
    EXPECT_EQ(round_to_integer(std::nextafter(x + 0.5f, 1e9f)), x + 1);
    EXPECT_EQ(round_to_integer(std::nextafter(x + 0.5f, -1e9f)), x);
  }
}

}  // namespace
}  // namespace assay::kv
