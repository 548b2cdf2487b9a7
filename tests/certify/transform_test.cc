// Balance, rotation and bypass leave q.k alone; the margins of their rounding hold; query halves.
#include <gtest/gtest.h>

#include "tests/certify/exact_rows.h"

namespace assay::kv::testing {
namespace {

TEST(Rotation, SignsAreFixedForAllTimeAndBalanced) {
  const Row signs = signs_of(128);
  uint32_t first = 0;
  int negative = 0;
  for (size_t i = 0; i < 128; ++i) {
    if (i < 32) first |= (signs[i] < 0 ? 1u : 0u) << i;
    negative += signs[i] < 0;
    EXPECT_EQ(std::fabs(signs[i]), 1.0f);
  }
  EXPECT_EQ(first, 0xa2c1e532u) << "stored rows depend on it";
  EXPECT_GT(negative, 45);
  EXPECT_LT(negative, 83);
}

TEST(Rotation, IsTheMatrixToItsMargin) {
  for (int d : {16, 64, 128, 256, 512}) {
    RowSource source(1, d);
    const Row signs = signs_of(d);
    double worst = 0;
    for (int trial = 0; trial < 40; ++trial) {
      const Row x = source.hostile();
      Row in_float = x;
      rotate(signs.data(), in_float.data(), d);
      const ExactRow truth = exact_rotation(signs, exact(x));
      ExactRow error(truth);
      for (size_t i = 0; i < error.size(); ++i) error[i] -= in_float[i];
      ASSERT_LE(norm(error), rotation_margin(d) * norm(exact(in_float)));
      worst = std::max(worst, static_cast<double>(norm(error) / norm(truth) / kUnitRoundoff));
      rotate_back(signs.data(), in_float.data(), d);
      for (size_t i = 0; i < error.size(); ++i) error[i] = static_cast<long double>(in_float[i]) - x[i];
      ASSERT_LE(norm(error), 2.1L * rotation_margin(d) * norm(exact(x)));
    }
    EXPECT_GT(worst, 0.5) << "a margin nothing comes near is no margin";
  }
}

TEST(Transform, KeepsTheLogitToFloatRounding) {
  for (int d : {16, 64, 128}) {
    RowSource source(2, d);
    const Row signs = signs_of(d);
    const uint16_t bypass[] = {3, 11};
    for (int trial = 0; trial < 400; ++trial) {
      const Row lambda = source.balance(), key = source.hostile(), query = source.gaussian(1);
      const RowTransform t{.head_dim = d,
                           .signs = trial % 2 ? signs.data() : nullptr,
                           .lambda = trial % 3 ? lambda.data() : nullptr,
                           .bypass = bypass,
                           .bypass_count = trial % 5 ? 2 : 0};
      Row k(key), q(query);
      transform_key(t, key.data(), k.data());
      transform_query(t, query.data(), q.data());
      long double rest = 0;
      for (int i = 0; i < t.bypass_count; ++i) {
        rest += static_cast<long double>(key[bypass[i]]) * query[bypass[i]];
      }
      const long double allowed = 2.1L * rotation_margin(d) * norm(exact(q)) * norm(exact(k));
      EXPECT_LE(std::fabs(dot(q, k) + rest - dot(query, key)), allowed);
    }
  }
}

TEST(Query, ScaledNormIsNearTwoToTheEight) {
  for (int exponent = -58; exponent < 127; ++exponent) {
    for (float mantissa : {1.0f, 1.5f, 1.9999999f}) {
      const float norm_bound = std::ldexp(mantissa, exponent), scaled = norm_bound * query_scale(norm_bound);
      EXPECT_GE(scaled, 256.0f);
      EXPECT_LT(scaled, 512.0f);
    }
  }
  EXPECT_EQ(query_scale(INFINITY), 1.0f);
  EXPECT_EQ(query_scale(NAN), 1.0f);
}

TEST(Query, HalvesKeepTheQueryToItsMargin) {
  for (int d : {16, 128, 512}) {
    RowSource source(3, d);
    for (int trial = 0; trial < 2000; ++trial) {
      Row q = source.hostile();
      const float bound = norm_up(q.data(), d), scale = query_scale(bound);
      ExactRow error(q.size());
      for (size_t i = 0; i < q.size(); ++i) {
        q[i] *= scale;
        const QueryHalves halves = split_query(q[i]);
        error[i] = static_cast<long double>(q[i]) - half_to_float(halves.high) - half_to_float(halves.low);
      }
      EXPECT_LE(norm(error), query_margin(d, false) * bound * scale);
    }
  }
}

TEST(Norm, IsAnUpperBoundAtEverySize) {
  for (int d : {1, 4, 16, 128, 512}) {
    RowSource source(4, d);
    for (int trial = 0; trial < 4000; ++trial) {
      const Row x = source.gaussian(std::pow(10.0, -44 + 60 * source.uniform()));
      const float bound = norm_up(x.data(), d);
      ASSERT_GE(static_cast<long double>(bound), norm(exact(x)));
      ASSERT_LE(static_cast<long double>(bound), norm(exact(x)) * (1 + 1.4e-4L) + 1e-17L);
    }
  }
}

TEST(Bands, PartitionTheRotaryPairs) {
  for (int d : {16, 32, 64, 128, 256}) {
    std::vector<int> channels(static_cast<size_t>(band_count(d)));
    for (int c = 0; c < d; ++c) {
      ++channels.at(static_cast<size_t>(band_of_channel(c, d)));
      EXPECT_EQ(band_of_channel(c, d), band_of_channel((c + d / 2) % d, d));
    }
    for (int n : channels) EXPECT_EQ(n, d / band_count(d));
  }
}

}  // namespace
}  // namespace assay::kv::testing
