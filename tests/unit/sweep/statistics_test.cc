#include "server/sweep/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace assay::sweep {
namespace {

TEST(Statistics, EmptySampleHasNoNumbers) {
  const Distribution d = describe({});
  EXPECT_EQ(d.count, 0);
  EXPECT_TRUE(std::isnan(d.mean));
  EXPECT_TRUE(std::isnan(d.median));
  EXPECT_TRUE(std::isnan(d.p99_9));
}

TEST(Statistics, OneSampleIsEveryQuantile) {
  const Distribution d = describe({7.5});
  EXPECT_EQ(d.count, 1);
  for (const double value : {d.mean, d.min, d.median, d.p90, d.p95, d.p99, d.p99_9, d.max}) EXPECT_EQ(value, 7.5);
}

TEST(Statistics, InterpolatesBetweenTheClosestRanks) {
  // 1..1001: rank of quantile q is 1000 q, so the value is 1 + 1000 q.
  std::vector<double> samples(1001);
  std::iota(samples.rbegin(), samples.rend(), 1.0);
  const Distribution d = describe(samples);
  EXPECT_DOUBLE_EQ(d.mean, 501.0);
  EXPECT_DOUBLE_EQ(d.median, 501.0);
  EXPECT_DOUBLE_EQ(d.p90, 901.0);
  EXPECT_DOUBLE_EQ(d.p95, 951.0);
  EXPECT_DOUBLE_EQ(d.p99, 991.0);
  EXPECT_DOUBLE_EQ(d.p99_9, 1000.0);
  EXPECT_DOUBLE_EQ(d.max, 1001.0);
}

TEST(Statistics, FourSamples) {
  const Distribution d = describe({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(d.mean, 25.0);
  EXPECT_DOUBLE_EQ(d.median, 25.0);
  EXPECT_DOUBLE_EQ(d.p90, 37.0);     // position 2.7
  EXPECT_DOUBLE_EQ(d.p95, 38.5);     // position 2.85
  EXPECT_DOUBLE_EQ(d.p99, 39.7);     // position 2.97
  EXPECT_DOUBLE_EQ(d.p99_9, 39.97);  // position 2.997
}

}  // namespace
}  // namespace assay::sweep
