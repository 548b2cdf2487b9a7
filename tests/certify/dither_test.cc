// What the dither does to a residual, and the radius that follows. The guarantee is CONDITIONAL: it is over the draw of
// the table, for keys and queries that do not depend on it. These tests redraw the table for each trial; the last ones
// show what happens when a query knows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "kernels/kv/codec.h"
#include "tests/certify/exact_rows.h"

namespace assay::kv::testing {
namespace {

// Residual over step of x = value * scale with dither xi, exactly.
long double residual_in_steps(float x, float scale, float xi) {
  return static_cast<long double>(quantise(x, scale, xi)) - xi - static_cast<long double>(x) / scale;
}

TEST(DitherResidual, TakesEveryLatticePointOfAStepOnceForAnyInput) {
  RowSource source(30, 16);
  for (int trial = 0; trial < 200; ++trial) {
    const float scale = half_to_float(static_cast<uint16_t>(1 + source.below(0x7bff)));
    const float x = scale * static_cast<float>(126.5 * (2 * source.uniform() - 1));
    std::vector<long double> points;
    for (uint32_t j = 0; j < 4096; ++j) points.push_back(residual_in_steps(x, scale, dither_from_word(j << 20)));
    std::sort(points.begin(), points.end());
    long double mean = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      mean += points[i] / 4096;
      ASSERT_LE(std::fabs(points[i]), 0.5L + 0x1p-17L);
      if (i > 0) {
        ASSERT_LE(std::fabs(points[i] - points[i - 1] - 0x1p-12L), 1e-16L);
      }
    }
    ASSERT_LE(std::fabs(mean), kDitherBias);
  }
}

TEST(DitherResidual, IsUniformAndIndependentOfInputAndOfOtherChannels) {
  RowSource source(31, 64);
  const Row x = source.hostile();
  const float scale = half_to_float(scale_bits_of(x.data(), 64));
  constexpr int kDraws = 40000;
  std::vector<double> cells(32), previous(64);
  double mean = 0, square = 0, neighbour = 0, with_input = 0;
  Row xi(64);
  for (uint32_t draw = 0; draw < kDraws; ++draw) {
    dither_row(draw, 0, 0, 0, 64, xi.data());
    std::vector<double> r(64);
    for (size_t c = 0; c < 64; ++c) {
      r[c] = static_cast<double>(residual_in_steps(x[c], scale, xi[c]));
      ++cells[std::min<size_t>(31, static_cast<size_t>((r[c] + 0.5) * 32))];
      mean += r[c];
      square += r[c] * r[c];
      with_input += r[c] * (x[c] < 0 ? -1 : 1);
      if (c > 0) neighbour += r[c] * r[c - 1];
    }
  }
  const double count = 64.0 * kDraws, sigma = std::sqrt(1 / 12.0 / count);
  EXPECT_LT(std::fabs(mean / count), 5 * sigma + kDitherBias);
  EXPECT_NEAR(square / count, 1 / 12.0, 5 * std::sqrt(1 / 180.0 / count) + 1e-6);
  EXPECT_LT(std::fabs(with_input / count), 5 * sigma + kDitherBias);
  EXPECT_LT(std::fabs(neighbour / count), 5 / 12.0 / std::sqrt(count));
  double chi_square = 0;
  for (double n : cells) chi_square += (n - count / 32) * (n - count / 32) / (count / 32);
  EXPECT_LT(chi_square, 31 + 6 * 7.9);
}

TEST(DitherResidual, WithoutDitherItDependsOnTheInput) {
  // The control of the test above: round to nearest has the residual of its input, not a uniform one.
  const float scale = 0.25f;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(residual_in_steps(scale * static_cast<float>(i - 50), scale, 0.0f), 0.0L);
}

TEST(DitherAccumulator, EqualsDecodeThenMultiplyToFloatRounding) {
  for (int d : {32, 64, 128}) {
    RowSource source(32, d);
    for (int trial = 0; trial < 2000; ++trial) {
      const Row key = source.hostile(), q = source.gaussian(1);
      Row xi(key), decoded(key);
      dither_row(trial, 1, 2, 3, d, xi.data());
      std::vector<int8_t> levels(key.size());
      std::vector<uint16_t> scales(static_cast<size_t>(group_count(d)));
      encode_groups(key.data(), d, xi.data(), levels.data(), scales.data());
      decode_groups(levels.data(), scales.data(), d, xi.data(), decoded.data());
      float accumulated = 0, multiplied = 0;
      long double magnitude = 0;
      for (int g = 0; g < group_count(d); ++g) {
        float sum = 0;  // starts at -q.xi of the group: a number of the query and the table row alone
        for (int c = 32 * g; c < 32 * (g + 1); ++c) sum -= q[static_cast<size_t>(c)] * xi[static_cast<size_t>(c)];
        for (int c = 32 * g; c < 32 * (g + 1); ++c) {
          const size_t i = static_cast<size_t>(c);
          sum += q[i] * static_cast<float>(levels[i]);
          magnitude += std::fabs(static_cast<long double>(q[i]) * half_to_float(scales[static_cast<size_t>(g)]) *
                                 (std::fabs(static_cast<float>(levels[i])) + 1));
        }
        accumulated += sum * half_to_float(scales[static_cast<size_t>(g)]);
      }
      for (size_t c = 0; c < q.size(); ++c) multiplied += q[c] * decoded[c];
      EXPECT_LE(std::fabs(accumulated - multiplied), 0x1p-23L * (d + 64) * magnitude);
      EXPECT_NEAR(accumulated, multiplied, 2e-6 * static_cast<double>(magnitude));
    }
  }
}

TEST(DitherKappa, IsTheUnionBoundRoundedUp) {
  const double exact = std::sqrt(2 * std::log(2 * 4096.0 * 262144 / 1e-2));
  const float kappa = dither_kappa(4096, 1e-2 / 262144);
  EXPECT_NEAR(kappa, 7.22, 0.005);
  EXPECT_GE(static_cast<double>(kappa), exact);
  EXPECT_LE(static_cast<double>(kappa), exact * (1 + 1e-6));
}

// One request: `tokens` keys and one query per step, all chosen without the table.
struct Request {
  std::vector<Row> keys, queries;
};

struct Coverage {
  int requests = 0, violating = 0;
  long double tightest = 0;
};

// Runs the request against a fresh table `seed`; the radius is multiplied by `shrink` (1 in earnest, less as a
// control).
void serve(const Request& request, uint64_t seed, bool periodic, double delta_loc, float shrink, Coverage& coverage) {
  const int d = static_cast<int>(request.keys[0].size()), size = group_channels(d), groups = group_count(d);
  const ArithmeticMargins margins = split_query_margins(d, false);
  const float sc = 1.0f / std::sqrt(static_cast<float>(d));
  const float kappa = dither_kappa(static_cast<double>(request.keys.size()), delta_loc);
  bool violated = false;
  Row xi(static_cast<size_t>(d)), squares(16), sums(16);
  std::vector<int8_t> levels(xi.size());
  std::vector<uint16_t> scales(16);
  for (size_t t = 0; t < request.keys.size(); ++t) {
    const uint32_t slot = static_cast<uint32_t>(1000 + t);
    dither_row(seed, 5, 1, periodic ? slot % kDitherPeriod : slot, d, xi.data());
    encode_groups(request.keys[t].data(), d, xi.data(), levels.data(), scales.data());
    for (const Row& q : request.queries) {
      group_query_sums(q.data(), d, squares.data(), sums.data());
      const DitherQuery query{squares.data(), sums.data(), norm_up(q.data(), d)};
      const float radius = shrink * dither_radius(kappa, sc, query, scales.data(), groups, size, margins);
      long double error = 0;
      for (size_t c = 0; c < xi.size(); ++c) {
        const long double s = half_to_float(scales[c / static_cast<size_t>(size)]);
        error += q[c] * (s * (levels[c] - static_cast<long double>(xi[c])) - request.keys[t][c]);
      }
      error = std::fabs(error * sc);
      coverage.tightest = std::max(coverage.tightest, error / radius);
      violated = violated || error > radius;
    }
  }
  ++coverage.requests;
  coverage.violating += violated;
}

Request make_request(uint64_t seed, int d, int tokens, int steps, bool spike) {
  RowSource source(seed, d);
  Request request;
  for (int t = 0; t < tokens; ++t) request.keys.push_back(source.hostile());
  for (int i = 0; i < steps; ++i) {
    request.queries.push_back(source.gaussian(1));
    if (spike) {
      request.queries.back().assign(static_cast<size_t>(d), 0.0f);
      request.queries.back()[source.below(static_cast<uint64_t>(d))] = 3;
    }
  }
  return request;
}

TEST(DitherCoverage, ConditionalGuaranteeHoldsOverRedrawnTables) {
  for (bool periodic : {true, false}) {
    for (bool spike : {false, true}) {
      constexpr double kDelta = 0.5;  // large, so that violations can be seen at all
      constexpr int kSteps = 4;
      Coverage real, control;
      for (uint64_t r = 0; r < 40; ++r) {
        const Request request = make_request(100 + r, 64, 3, kSteps, spike);
        for (uint64_t table = 0; table < 50; ++table) {
          serve(request, 1000 * r + table, periodic, kDelta / kSteps, 1.0f, real);
          serve(request, 1000 * r + table, periodic, kDelta / kSteps, 0.3f, control);
        }
      }
      std::printf(
          "  conditional, %s, %s queries: violating requests %d of %d (delta %.2f), largest error / radius %.3Lf\n",
          periodic ? "periodic table" : "per slot", spike ? "one-channel" : "gaussian", real.violating, real.requests,
          kDelta, real.tightest);
      EXPECT_LE(real.violating, kDelta * real.requests);
      EXPECT_GT(control.violating, kDelta * control.requests) << "a radius of 0.3 must be seen to fail";
    }
  }
}

TEST(DitherCoverage, NoViolationAtTheDefaultBudget) {
  Coverage coverage;
  for (uint64_t r = 0; r < 12; ++r)
    serve(make_request(200 + r, 128, 200, 6, r % 3 == 0), r, true, 1e-2 / 262144, 1.0f, coverage);
  std::printf("  conditional: violating requests %d of %d, largest error / radius %.3Lf\n", coverage.violating,
              coverage.requests, coverage.tightest);
  EXPECT_EQ(coverage.violating, 0);
}

TEST(DitherCoverage, AQueryThatKnowsTheTableBreaksIt) {
  // Not covered by the guarantee: the query is the residual itself. This is why free-running cells are "conditional".
  RowSource source(33, 128);
  const Row key = source.gaussian(1);
  Row xi(key);
  dither_row(1, 0, 0, 0, 128, xi.data());
  std::vector<int8_t> levels(128);
  uint16_t scales[4];
  encode_groups(key.data(), 128, xi.data(), levels.data(), scales);
  Request request{{key}, {Row(128)}};
  for (size_t c = 0; c < 128; ++c) {
    const float s = half_to_float(scales[c / 32]);
    request.queries[0][c] = s * (static_cast<float>(levels[c]) - xi[c]) - key[c];
  }
  float squares[4], sums[4];
  const Row& q = request.queries[0];
  group_query_sums(q.data(), 128, squares, sums);
  const float kappa = dither_kappa(4096, 1e-2 / 262144);
  const DitherQuery query{squares, sums, norm_up(q.data(), 128)};
  const float radius = dither_radius(kappa, 1.0f, query, scales, 4, 32, split_query_margins(128, false));
  const long double error = dot(q, q);
  EXPECT_GT(error / radius, 1.3L);
  // The witness of the same row holds for this query too.
  Row decoded(key);
  decode_groups(levels.data(), scales, 128, xi.data(), decoded.data());
  uint16_t witness[16];
  band_witness(key.data(), decoded.data(), 128, plain_margins(128), witness);
  float factors[16];
  band_factors(1.0f, q.data(), 128, plain_margins(128), factors);
  EXPECT_LE(error, static_cast<long double>(band_radius(factors, witness, 128)));
}

TEST(DitherRadius, GrowsWithEveryInputAndIsInfiniteForAnExactOnlyGroup) {
  const float squares[] = {1, 1}, sums[] = {5, 5};
  const DitherQuery query{squares, sums, 1.5f};
  const ArithmeticMargins margins = split_query_margins(64, true);
  uint16_t scales[] = {half_up(0.01f), half_up(0.02f)};
  const float radius = dither_radius(7, 0.125f, query, scales, 2, 32, margins);
  EXPECT_GT(dither_radius(8, 0.125f, query, scales, 2, 32, margins), radius);
  EXPECT_GT(radius, dither_radius(7, 0.125f, query, scales, 2, 32, ArithmeticMargins{}));
  EXPECT_LT(radius, 1.03f * dither_radius(7, 0.125f, query, scales, 2, 32, ArithmeticMargins{}));
  scales[1] = kHalfInfinity;
  EXPECT_EQ(dither_radius(7, 0.125f, query, scales, 2, 32, margins), INFINITY);
}

}  // namespace
}  // namespace assay::kv::testing
