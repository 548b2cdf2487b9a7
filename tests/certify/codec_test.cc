// The certified and witcert quantisers: nothing clips, hostile rows become exact-only, and the radius bounds every
// logit error, the kernels' own arithmetic included, for queries along the residual.
#include "kernels/kv/codec.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/certify/exact_rows.h"

namespace assay::kv::testing {
namespace {

constexpr float kLargestDither = 0.5f - kDitherLattice;

TEST(Scale, RoundedUpForEveryHalfAndNothingClips) {
  for (uint16_t bits = 1; bits < kHalfInfinity; ++bits) {
    const float scale = half_to_float(bits), amax = 126.5f * scale;
    ASSERT_EQ(scale_bits_from_amax(amax), bits);
    ASSERT_EQ(scale_bits_from_amax(std::nextafter(amax, INFINITY)), bits + 1);
    const float below = std::nextafter(126.5f * half_to_float(static_cast<uint16_t>(bits - 1)), INFINITY);
    ASSERT_EQ(scale_bits_from_amax(below), bits);
    for (float x : {amax, -amax, below, -below, std::nextafter(amax, 0.0f)}) {
      for (float xi : {-0.5f, 0.0f, 0.25f, kLargestDither}) {
        const float z = divide(x, scale) + xi;
        ASSERT_LE(std::fabs(z), 127.0f) << bits;
        ASSERT_EQ(static_cast<float>(quantise(x, scale, xi)), round_to_integer(z));
      }
    }
  }
  EXPECT_EQ(scale_bits_from_amax(0.0f), 0);
  EXPECT_EQ(scale_bits_from_amax(1e-45f), 1);
  EXPECT_EQ(scale_bits_from_amax(8.2863e6f), kHalfInfinity);
  EXPECT_EQ(scale_bits_from_amax(INFINITY), kHalfInfinity);
  EXPECT_EQ(scale_bits_from_amax(NAN), kHalfInfinity);
}

TEST(Scale, RandomRowsOfEveryMagnitudeStayWithinHalfAStep) {
  RowSource source(20, 64);
  for (int exponent = -149; exponent <= 22; ++exponent) {
    for (int trial = 0; trial < 60; ++trial) {
      Row x = source.gaussian(0.4);
      for (float& value : x) value = std::ldexp(value, exponent);
      const uint16_t bits = scale_bits_of(x.data(), 64);
      if (bits == kHalfInfinity) continue;
      const float scale = half_to_float(bits);
      for (float value : x) {
        if (bits == 0) {
          ASSERT_EQ(value, 0.0f);
          continue;
        }
        const float xi = dither_from_word(static_cast<uint32_t>(source.below(uint64_t{1} << 32)));
        const int level = quantise(value, scale, xi);
        ASSERT_LE(std::abs(level), 127);
        const long double residual = static_cast<long double>(scale) * (static_cast<long double>(level) - xi) - value;
        ASSERT_LE(std::fabs(residual), scale * (0.5L + 0x1p-17L));
      }
    }
  }
}

TEST(Scale, BiasedBytesAreOneTo255) {
  for (int level = -127; level <= 127; ++level) {
    const uint8_t byte = biased_level(static_cast<int8_t>(level));
    EXPECT_EQ(byte, level + 128);
    EXPECT_EQ(level_from_biased(byte), level);
  }
}

TEST(Certified, RowsThatCannotBeStoredAreExactOnly) {
  const ArithmeticMargins margins = split_query_margins(64, true);
  int8_t levels[64];
  Row x(64, 1.0f), decoded(64);
  for (float bad : {NAN, -NAN, INFINITY, -INFINITY, 8.4e6f, -3e38f}) {
    for (size_t at : {size_t{0}, size_t{31}, size_t{63}}) {
      Row row = x;
      row[at] = bad;
      for (const CertifiedSide side : {encode_certified_key(row.data(), 64, nullptr, margins, levels),
                                       encode_certified_value(row.data(), 64, margins, levels)}) {
        EXPECT_EQ(side.bound, kHalfInfinity);
        decode_certified(levels, side, 64, nullptr, decoded.data());
        for (float value : decoded) EXPECT_EQ(value, 0.0f);
      }
      uint16_t scales[2];
      encode_groups(row.data(), 64, nullptr, levels, scales);
      EXPECT_EQ(scales[at / 32], kHalfInfinity);
      EXPECT_NE(scales[1 - at / 32], kHalfInfinity);
      decode_groups(levels, scales, 64, nullptr, decoded.data());
      for (float value : decoded) EXPECT_TRUE(std::isfinite(value));
      EXPECT_EQ(group_value_radius(scales, 2, 32), INFINITY);
    }
  }
  const Row zeros(64, 0.0f);
  const CertifiedSide side = encode_certified_key(zeros.data(), 64, nullptr, margins, levels);
  EXPECT_EQ(side.scale, 0);
  EXPECT_EQ(side.bound, 0);
  for (int8_t level : levels) EXPECT_EQ(level, 0);
}

// A pool's settings for one head, and one stored key of it.
struct Head {
  int d;
  Row signs, lambda, xi;
  std::vector<uint16_t> bypass;
  RowTransform transform;
};

Head make_head(RowSource& source, int d, bool rotated, bool balanced, bool bypassed, bool dithered) {
  Head head{d, signs_of(d), source.balance(), {}, {}, {}};
  if (bypassed) head.bypass = {1, static_cast<uint16_t>(1 + d / 2), 5, static_cast<uint16_t>(5 + d / 2)};
  if (dithered) {
    head.xi.resize(static_cast<size_t>(d));
    dither_row(source.below(1u << 30), 3, 1, static_cast<uint32_t>(source.below(64)), d, head.xi.data());
  }
  head.transform = RowTransform{d, rotated ? head.signs.data() : nullptr, balanced ? head.lambda.data() : nullptr,
                                head.bypass.data(), static_cast<int>(head.bypass.size())};
  return head;
}

struct StoredKey {
  std::vector<int8_t> levels;
  CertifiedSide side;
};

StoredKey store(const Head& head, const Row& key) {
  Row x(key);
  transform_key(head.transform, key.data(), x.data());
  StoredKey stored{std::vector<int8_t>(key.size()), {}};
  stored.side = encode_certified_key(x.data(), head.d, head.xi.empty() ? nullptr : head.xi.data(),
                                     transform_margins(head.transform), stored.levels.data());
  return stored;
}

// A query along the residual of the stored key: the worst direction there is, in the model's channels.
Row along_residual(const Head& head, const Row& key, const StoredKey& stored) {
  const RowTransform& t = head.transform;
  ExactRow x = exact(key), residual(key.size());
  for (uint16_t c : head.bypass) x[c] = 0;
  if (t.lambda != nullptr) {
    for (size_t c = 0; c < x.size(); ++c) x[c] /= t.lambda[c];
  }
  if (t.signs != nullptr) x = exact_rotation(head.signs, x);
  const long double scale = half_to_float(stored.side.scale);
  for (size_t c = 0; c < x.size(); ++c) {
    residual[c] = scale * (stored.levels[c] - (head.xi.empty() ? 0.0L : head.xi[c])) - x[c];
  }
  if (t.signs != nullptr) residual = exact_rotation_back(head.signs, residual);
  Row query(key.size());
  const long double size = norm(residual) > 0 ? norm(residual) : 1;
  for (size_t c = 0; c < x.size(); ++c) {
    query[c] = static_cast<float>(residual[c] / size / (t.lambda != nullptr ? t.lambda[c] : 1.0f));
  }
  return query;
}

float toward_zero(double x) {
  const float nearest = static_cast<float>(x);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
}

// Three ways kernels sum sum_c q_c (n_c - xi_c): float in order, float over eight lanes, and two halves in one
// accumulator whose every partial sum is truncated, the dither's product as its initial value.
enum class Arithmetic { kSerial, kLanes, kTruncatedHalves };

float level_sum(Arithmetic how, const Head& head, const Row& q, const StoredKey& stored) {
  const auto dither = [&](size_t c) { return head.xi.empty() ? 0.0f : head.xi[c]; };
  if (how == Arithmetic::kTruncatedHalves) {
    float start = 0;
    for (size_t c = 0; c < q.size(); ++c) start -= q[c] * dither(c);
    float sum = start;
    for (size_t c = 0; c < q.size(); ++c) {
      const QueryHalves halves = split_query(q[c]);
      sum = toward_zero(static_cast<double>(sum) + static_cast<double>(half_to_float(halves.high)) * stored.levels[c]);
      sum = toward_zero(static_cast<double>(sum) + static_cast<double>(half_to_float(halves.low)) * stored.levels[c]);
    }
    return sum;
  }
  float lanes[8] = {};
  const size_t width = how == Arithmetic::kSerial ? 1 : 8;
  for (size_t c = 0; c < q.size(); ++c) lanes[c % width] += q[c] * (static_cast<float>(stored.levels[c]) - dither(c));
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

struct Served {
  float logit;
  float radius;
};

Served serve(Arithmetic how, const Head& head, const Row& key, const Row& query, const StoredKey& stored,
             float softmax_scale) {
  const RowTransform& t = head.transform;
  Row q(query);
  transform_query(t, query.data(), q.data());
  const float bound = norm_up(q.data(), head.d), scale = query_scale(bound);
  for (float& value : q) value *= scale;
  const float after = softmax_scale / scale;
  float bypass = 0, magnitude = 0;
  for (uint16_t c : head.bypass) {
    bypass += query[c] * key[c];
    magnitude += std::fabs(query[c] * key[c]);
  }
  Served served;
  served.logit = level_sum(how, head, q, stored) * half_to_float(stored.side.scale) * after + bypass * softmax_scale;
  served.radius = witness_factor(after, bound * scale, transform_margins(t)) * half_to_float(stored.side.bound) +
                  bypass_radius(softmax_scale, magnitude, static_cast<int>(head.bypass.size()));
  return served;
}

TEST(Certified, RadiusBoundsEveryLogitErrorOfEveryArithmetic) {
  long checks = 0, violations = 0;
  long double tightest = 0;
  for (int d : {16, 64, 128, 256}) {
    RowSource source(21 + static_cast<uint64_t>(d), d);
    const float softmax_scale = 1.0f / std::sqrt(static_cast<float>(d));
    for (int trial = 0; trial < 1500; ++trial) {
      const Head head = make_head(source, d, trial & 1, trial & 2, trial & 4, trial & 8);
      const Row key = source.hostile();
      const StoredKey stored = store(head, key);
      for (const Row& query : {along_residual(head, key, stored), source.hostile(), key}) {
        const long double truth = static_cast<long double>(softmax_scale) * dot(query, key);
        for (Arithmetic how : {Arithmetic::kSerial, Arithmetic::kLanes, Arithmetic::kTruncatedHalves}) {
          const Served served = serve(how, head, key, query, stored, softmax_scale);
          const long double error = std::fabs(served.logit - truth);
          ++checks;
          if (!(error <= static_cast<long double>(served.radius))) ++violations;
          if (served.radius > 0) tightest = std::max(tightest, error / served.radius);
        }
      }
    }
  }
  std::printf("  violations %ld of %ld, largest error / radius %.5Lf\n", violations, checks, tightest);
  EXPECT_EQ(violations, 0);
  EXPECT_GT(tightest, 0.985L) << "queries along the residual must come close";
}

TEST(Certified, EveryTermIsInTheWitness) {
  const auto bound = [](float residual, float exact, float decoded, ArithmeticMargins margins) {
    return half_to_float(witness_from_norms(residual, exact, decoded, 128, margins));
  };
  const ArithmeticMargins margins{0.01f, 0.02f, 0.04f};
  EXPECT_GE(bound(3, 0, 0, margins), 3.0f);
  EXPECT_GE(bound(0, 100, 0, margins), 1.0f);
  EXPECT_GE(bound(0, 0, 100, margins), 6.0f);
  EXPECT_GE(bound(3, 100, 100, margins), 10.0f);
  EXPECT_LE(bound(3, 100, 100, margins), 10.01f);
  EXPECT_EQ(bound(0, 0, 0, margins), 0x1p-24f) << "squares that underflow are not zero";
  EXPECT_EQ(bound(65505, 0, 0, margins), INFINITY);
}

TEST(Certified, WitnessCostsLittleAboveTheResidual) {
  RowSource source(22, 128);
  const Head head = make_head(source, 128, true, false, false, false);
  double sum = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Row key = source.gaussian(1);
    const StoredKey stored = store(head, key);
    Row x(key), decoded(key);
    transform_key(head.transform, key.data(), x.data());
    decode_certified(stored.levels.data(), stored.side, 128, nullptr, decoded.data());
    ExactRow residual(x.size());
    for (size_t c = 0; c < x.size(); ++c) residual[c] = static_cast<long double>(decoded[c]) - x[c];
    sum += static_cast<double>(half_to_float(stored.side.bound) / norm(residual)) - 1;
  }
  EXPECT_GT(sum / 500, 0.002);
  EXPECT_LT(sum / 500, 0.008);
}

// Without dither the key's scale is the best of some; with it, the least one, whatever the dither.
TEST(Certified, TheScaleOfAKeyIsChosenByItsResidual) {
  for (const int dim : {16, 64, 128}) {
    RowSource source(31, dim);
    double chosen = 0, least = 0;
    for (int i = 0; i < 500; ++i) {
      const Row x = source.gaussian(std::pow(10.0, i % 8 - 4));
      std::vector<int8_t> levels(static_cast<size_t>(dim));
      const ArithmeticMargins margins = split_query_margins(dim, true);
      const CertifiedSide side = encode_certified_key(x.data(), dim, nullptr, margins, levels.data());
      const uint16_t bits = scale_bits_from_amax(multiply(largest_magnitude(x.data(), dim), kKeyReach));
      const float residual = detail::row_residual(x.data(), dim, half_to_float(side.scale));
      for (int candidate = 0; candidate < kKeyScales; ++candidate) {
        const auto other = static_cast<uint16_t>(bits + candidate * kKeyScaleStep);
        ASSERT_LE(residual, detail::row_residual(x.data(), dim, half_to_float(other)));
      }
      ASSERT_EQ((side.scale - bits) % kKeyScaleStep, 0);
      for (int c = 0; c < dim; ++c) {
        const float difference = dequantise(levels[static_cast<size_t>(c)], half_to_float(side.scale), 0.0f) - x[c];
        ASSERT_LE(std::fabs(difference), 0.5001f * half_to_float(side.scale)) << "nothing clips";
      }
      chosen += std::sqrt(residual);
      least += std::sqrt(detail::row_residual(x.data(), dim, half_to_float(scale_bits_of(x.data(), dim))));
      const Row xi(static_cast<size_t>(dim), 0.25f);
      EXPECT_EQ(encode_certified_key(x.data(), dim, xi.data(), margins, levels.data()).scale, scale_bits_of(x.data(), dim));
    }
    EXPECT_LT(chosen, 0.96 * least) << dim;
  }
}

TEST(Certified, RhoBoundsValuesInTheModelsChannels) {
  for (int d : {16, 64, 128, 256}) {
    RowSource source(23, d);
    const Row signs = signs_of(d);
    for (int trial = 0; trial < 250; ++trial) {
      const RowTransform t{.head_dim = d, .signs = trial % 4 ? signs.data() : nullptr};
      const Row value = source.hostile();
      Row x(value), decoded(value);
      std::vector<int8_t> levels(value.size());
      transform_value(t, value.data(), x.data());
      const CertifiedSide side = encode_certified_value(x.data(), d, transform_margins(t), levels.data());
      decode_certified(levels.data(), side, d, nullptr, decoded.data());
      if (t.signs != nullptr) rotate_back(signs.data(), decoded.data(), d);
      ExactRow error(value.size());
      for (size_t c = 0; c < error.size(); ++c) error[c] = static_cast<long double>(decoded[c]) - value[c];
      ASSERT_LE(norm(error), half_to_float(side.bound));
      ASSERT_LE(half_to_float(side.bound), 1.01L * norm(error) + 1e-5L * norm(exact(value)) + 0x1p-23L);
    }
  }
}

TEST(Certified, QueryAlongTheKeyWithOneHalfOnlyWouldBreakTheWitness) {
  // Why the query goes in as two halves: with one, the operand's own 2^-11 is outside the witness.
  RowSource source(24, 128);
  const Head head = make_head(source, 128, true, false, false, false);
  Row flat(128, 1.0f);  // quantised without residual: all levels equal after the inverse rotation
  rotate_back(head.signs.data(), flat.data(), 128);
  const StoredKey stored = store(head, flat);
  Row q(flat);
  transform_query(head.transform, flat.data(), q.data());
  const float bound = norm_up(q.data(), 128), scale = query_scale(bound) * 1.0007f;
  long double with_high_half = 0, truth = 0;
  for (size_t c = 0; c < q.size(); ++c) {
    q[c] *= scale;
    with_high_half += static_cast<long double>(half_to_float(split_query(q[c]).high)) * stored.levels[c];
    truth += static_cast<long double>(q[c]) * stored.levels[c];
  }
  const long double error = std::fabs(with_high_half - truth) * half_to_float(stored.side.scale);
  EXPECT_GT(error, 0.01L * bound * scale * half_to_float(stored.side.bound));
}

TEST(Witcert, ValuesStayWithinTheRadiusFromTheirScales) {
  for (int d : {16, 64, 128}) {
    RowSource source(25, d);
    for (int trial = 0; trial < 3000; ++trial) {
      const Row value = source.hostile();
      Row decoded(value);
      std::vector<int8_t> levels(value.size());
      std::vector<uint16_t> scales(static_cast<size_t>(group_count(d)));
      encode_groups(value.data(), d, nullptr, levels.data(), scales.data());
      decode_groups(levels.data(), scales.data(), d, nullptr, decoded.data());
      ExactRow error(value.size());
      for (size_t c = 0; c < error.size(); ++c) error[c] = static_cast<long double>(decoded[c]) - value[c];
      ASSERT_LE(norm(error), group_value_radius(scales.data(), group_count(d), group_channels(d)));
    }
  }
}

TEST(Witcert, BypassedChannelsLeaveTheScale) {
  RowSource source(26, 128);
  Row key = source.gaussian(1);
  key[7] = 500;
  const uint16_t massive[] = {7};
  Row x(key);
  std::vector<int8_t> levels(128);
  uint16_t with[4], without[4];
  transform_key(RowTransform{.head_dim = 128}, key.data(), x.data());
  encode_groups(x.data(), 128, nullptr, levels.data(), with);
  transform_key(RowTransform{.head_dim = 128, .bypass = massive, .bypass_count = 1}, key.data(), x.data());
  encode_groups(x.data(), 128, nullptr, levels.data(), without);
  EXPECT_GT(half_to_float(with[0]), 100 * half_to_float(without[0]));
  for (int g = 1; g < 4; ++g) EXPECT_EQ(with[g], without[g]);
}

}  // namespace
}  // namespace assay::kv::testing
