#include "kernels/core/dtype.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace assay {
namespace {

TEST(DType, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float f16 = f16_to_f32(half), bf16 = bf16_to_f32(half);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f16))));
    } else {
      EXPECT_EQ(f32_to_f16(f16), half);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(bf16))));
    } else {
      EXPECT_EQ(f32_to_bf16(bf16), half);
    }
  }
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), f32_to_f16(1.0f));             // tie to even, down
  EXPECT_EQ(f32_to_f16(1.0f + 0x3p-11f), f32_to_f16(1.0f + 0x2p-10f));  // tie to even, up
  EXPECT_EQ(f32_to_f16(1.0f + 0x1.1p-11f), f32_to_f16(1.0f + 0x1p-10f));
  EXPECT_EQ(f32_to_f16(0x1p-24f), 1);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);  // tie to even
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 1);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), f32_to_bf16(1.0f));
  EXPECT_EQ(f32_to_bf16(1.0f + 0x3p-8f), f32_to_bf16(1.0f + 0x2p-7f));
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace assay
