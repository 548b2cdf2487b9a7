// The observed schemes: sizes to the byte, what each keeps, and the band witness that bounds whatever they do.
#include "kernels/kv/observed_codecs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/certify/exact_rows.h"

namespace assay::kv::testing {
namespace {

struct Scheme {
  const char* name;
  int tokens;
  int64_t (*bytes)(const TileContext&);
  void (*encode)(const TileContext&, const float*, uint8_t*);
  void (*decode)(const TileContext&, const uint8_t*, float*);
  double key_bytes_at_128;  // per token, both sides worked out by hand
  double value_bytes_at_128;
  double step;  // worst |error| / (largest magnitude of the tile), 0 = lossless, negative = not bounded so
};

const Scheme kSchemes[] = {
    {"rtn-int8", 16, rtn_int8_bytes, rtn_int8_encode, rtn_int8_decode, 136, 136, 0.5 / 127 * 1.002},
    {"rtn-int8-tensor", 16, rtn_int8_tensor_bytes, rtn_int8_tensor_encode, rtn_int8_tensor_decode, 128, 128, -1},
    {"fp8-e4m3", 16, fp8_e4m3_bytes, fp8_e4m3_encode, fp8_e4m3_decode, 128, 128, -1},
    {"rtn-int4", 16, rtn_int4_bytes, rtn_int4_encode, rtn_int4_decode, 72, 72, 0.5 / 7 * 1.002},
    {"kivi-2", 32, kivi_2_bytes, kivi_2_encode, kivi_2_decode, 48, 48, 1.0 / 3 * 1.01},
    {"kvquant-4", 32, kvquant_4_bytes, kvquant_4_encode, kvquant_4_decode, 64 + 16 + 6.0 * 41 / 32, 68,
     1.0 / 15 * 1.01},
    {"stochastic-int8", 16, stochastic_int8_bytes, stochastic_int8_encode, stochastic_int8_decode, 136, 136,
     1.0 / 126.5 * 1.002},
    {"identity", 16, identity_bytes, identity_encode, identity_decode, 512, 512, 0},
};

class Observed : public ::testing::TestWithParam<Scheme> {
 protected:
  TileContext tile(int d, KvSide side) const {
    return TileContext{.head_dim = d, .tokens = GetParam().tokens, .side = side, .static_scale = 4.0f / 127, .seed = 5};
  }

  Row round_trip(const TileContext& context, const Row& rows) const {
    const size_t bytes = static_cast<size_t>(GetParam().bytes(context));
    std::vector<uint8_t> payload(bytes + 8, 0xa5);  // a guard behind the payload
    GetParam().encode(context, rows.data(), payload.data());
    for (size_t i = bytes; i < payload.size(); ++i) EXPECT_EQ(payload[i], 0xa5) << "wrote past its bytes";
    Row decoded(rows.size());
    GetParam().decode(context, payload.data(), decoded.data());
    return decoded;
  }
};

Row make_tile(RowSource& source, const TileContext& context) {
  Row rows;
  for (int t = 0; t < context.tokens; ++t) {
    const Row row = source.hostile();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

TEST_P(Observed, TakesTheBytesItSays) {
  const Scheme& scheme = GetParam();
  EXPECT_EQ(static_cast<double>(scheme.bytes(tile(128, KvSide::kKey))), scheme.key_bytes_at_128 * scheme.tokens);
  EXPECT_EQ(static_cast<double>(scheme.bytes(tile(128, KvSide::kValue))), scheme.value_bytes_at_128 * scheme.tokens);
}

TEST_P(Observed, ErrorStaysWithinItsStep) {
  if (GetParam().step < 0) return;  // has its own test below
  for (int d : {16, 64, 128}) {
    RowSource source(40, d);
    for (KvSide side : {KvSide::kKey, KvSide::kValue}) {
      for (int trial = 0; trial < 40; ++trial) {
        Row rows = make_tile(source, tile(d, side));
        for (float& x : rows) x = std::clamp(x, -60000.0f, 60000.0f);  // beyond, fp16 parameters do not reach
        const Row decoded = round_trip(tile(d, side), rows);
        float largest = 0;
        for (float x : rows) largest = std::max(largest, std::fabs(x));
        for (size_t i = 0; i < rows.size(); ++i) {
          ASSERT_LE(std::fabs(decoded[i] - rows[i]), GetParam().step * largest + (GetParam().step > 0 ? 0x1p-24 : 0));
        }
      }
    }
  }
}

TEST_P(Observed, BandWitnessBoundsTheLogitAndRhoTheValue) {
  long checks = 0, violations = 0;
  long double tightest = 0;
  for (int d : {16, 64, 128}) {
    RowSource source(41, d);
    const float sc = 1.0f / std::sqrt(static_cast<float>(d));
    const ArithmeticMargins margins = plain_margins(d);
    for (int trial = 0; trial < 25; ++trial) {
      const TileContext context = tile(d, KvSide::kKey);
      const Row rows = make_tile(source, context), decoded = round_trip(context, rows);
      for (int t = 0; t < context.tokens; ++t) {
        const Row key(rows.begin() + t * d, rows.begin() + (t + 1) * d);
        const Row served(decoded.begin() + t * d, decoded.begin() + (t + 1) * d);
        uint16_t witness[16];
        band_witness(key.data(), served.data(), d, margins, witness);
        Row along(key);  // worst case of every band at once
        std::vector<long double> band(16);
        for (int c = 0; c < d; ++c) {
          const long double r = static_cast<long double>(served[static_cast<size_t>(c)]) - key[static_cast<size_t>(c)];
          band[static_cast<size_t>(band_of_channel(c, d))] += r * r;
        }
        for (int c = 0; c < d; ++c) {
          const size_t i = static_cast<size_t>(c);
          const long double size = std::sqrt(band[static_cast<size_t>(band_of_channel(c, d))]);
          along[i] = size > 0 ? static_cast<float>((static_cast<long double>(served[i]) - key[i]) / size) : 0.0f;
        }
        for (const Row& query : {along, source.hostile(), key}) {
          float factors[16], logit = 0;
          band_factors(sc, query.data(), d, margins, factors);
          for (int c = 0; c < d; ++c) logit += query[static_cast<size_t>(c)] * served[static_cast<size_t>(c)];
          const long double error = std::fabs(logit * sc - sc * dot(query, key));
          const float radius = band_radius(factors, witness, d);
          ++checks;
          violations += !(error <= radius);
          tightest = std::max(tightest, error / radius);
        }
        ExactRow difference(key.size());
        for (size_t c = 0; c < key.size(); ++c) difference[c] = static_cast<long double>(served[c]) - key[c];
        ASSERT_LE(norm(difference), half_to_float(value_row_bound(key.data(), served.data(), d)));
      }
    }
  }
  std::printf("  %s: violations %ld of %ld, largest error / radius %.4Lf\n", GetParam().name, violations, checks,
              tightest);
  EXPECT_EQ(violations, 0);
  if (GetParam().step != 0) {
    EXPECT_GT(tightest, 0.9L);
  }
}

TEST_P(Observed, NotFiniteRowsNeverLookFine) {
  for (float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    const TileContext context = tile(64, KvSide::kKey);
    RowSource source(42, 64);
    Row rows = make_tile(source, context);
    rows[3 * 64 + 17] = bad;
    const Row decoded = round_trip(context, rows);
    uint16_t witness[16];
    band_witness(rows.data() + 3 * 64, decoded.data() + 3 * 64, 64, plain_margins(64), witness);
    EXPECT_EQ(witness[band_of_channel(17, 64)], kHalfInfinity) << GetParam().name << " " << bad;
    const bool kept = decoded[3 * 64 + 17] == bad && std::isfinite(bad);
    EXPECT_EQ(value_row_bound(rows.data() + 3 * 64, decoded.data() + 3 * 64, 64) == kHalfInfinity, !kept);
  }
}

TEST_P(Observed, ZerosStayZeros) {
  for (KvSide side : {KvSide::kKey, KvSide::kValue}) {
    const Row zeros(static_cast<size_t>(GetParam().tokens * 32), 0.0f);
    for (float x : round_trip(tile(32, side), zeros)) EXPECT_EQ(x, 0.0f);
  }
}

std::string test_name(const ::testing::TestParamInfo<Scheme>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Schemes, Observed, ::testing::ValuesIn(kSchemes), test_name);

TEST(ObservedFp8, KeepsThreeBitsAndSaturates) {
  const Row rows = [] {
    Row x(16 * 16, 1.0f);
    x[0] = 17.0f;
    x[1] = 1000.0f;
    x[2] = -1e30f;
    return x;
  }();
  const TileContext context{.head_dim = 16};
  std::vector<uint8_t> payload(256);
  Row decoded(256);
  fp8_e4m3_encode(context, rows.data(), payload.data());
  fp8_e4m3_decode(context, payload.data(), decoded.data());
  EXPECT_EQ(decoded[0], 16.0f);
  EXPECT_EQ(decoded[1], 448.0f);
  EXPECT_EQ(decoded[2], -448.0f);
  EXPECT_EQ(decoded[3], 1.0f);
}

TEST(ObservedTensor, SaturatesAtItsScale) {
  const TileContext context{.head_dim = 16, .static_scale = 0.5f};
  Row rows(256, 0.24f), decoded(256);
  rows[0] = 100.0f;
  rows[1] = -100.0f;
  rows[2] = 10.3f;
  rows[3] = NAN;
  std::vector<uint8_t> payload(256);
  rtn_int8_tensor_encode(context, rows.data(), payload.data());
  rtn_int8_tensor_decode(context, payload.data(), decoded.data());
  EXPECT_EQ(decoded[0], 63.5f);
  EXPECT_EQ(decoded[1], -63.5f);
  EXPECT_EQ(decoded[2], 10.5f);
  EXPECT_EQ(decoded[3], -63.5f);
  EXPECT_EQ(decoded[4], 0.0f);
}

TEST(ObservedKvquant, KeepsTheLargestHundredthExactAlsoWithTies) {
  const TileContext context{.head_dim = 64, .tokens = kChannelTile};
  RowSource source(43, 64);
  for (bool ties : {false, true}) {
    Row rows = make_tile(source, context);
    if (ties) std::fill(rows.begin(), rows.end(), 0.3f);
    std::vector<uint8_t> payload(static_cast<size_t>(kvquant_4_bytes(context)));
    Row decoded(rows.size());
    kvquant_4_encode(context, rows.data(), payload.data());
    kvquant_4_decode(context, payload.data(), decoded.data());
    Row sorted(rows);
    std::sort(sorted.begin(), sorted.end(), [](float a, float b) { return std::fabs(a) > std::fabs(b); });
    const int kept = kvquant_kept(context);
    EXPECT_EQ(kept, 21);
    int exact_large = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      exact_large += decoded[i] == rows[i] && std::fabs(rows[i]) >= std::fabs(sorted[static_cast<size_t>(kept - 1)]);
    }
    EXPECT_GE(exact_large, kept);
  }
}

TEST(ObservedStochastic, IsUnbiasedButItsProxyIsThreeTimesTheDithers) {
  RowSource source(44, 32);
  const Row row = source.gaussian(1);
  Row rows, decoded(16 * 32);
  for (int t = 0; t < 16; ++t) rows.insert(rows.end(), row.begin(), row.end());
  TileContext context{.head_dim = 32, .seed = 9};
  std::vector<uint8_t> payload(static_cast<size_t>(stochastic_int8_bytes(context)));
  const double scale = half_to_float(scale_bits_of(row.data(), 32));
  double mean = 0, largest = 0;
  constexpr int kTiles = 2000;
  for (int i = 0; i < kTiles; ++i) {
    context.first_slot = static_cast<uint32_t>(16 * i);
    stochastic_int8_encode(context, rows.data(), payload.data());
    stochastic_int8_decode(context, payload.data(), decoded.data());
    for (size_t j = 0; j < rows.size(); ++j) {
      const double steps = (decoded[j] - rows[j]) / scale;
      mean += steps / (kTiles * 16.0 * 32);
      largest = std::max(largest, std::fabs(steps));
    }
  }
  EXPECT_LT(std::fabs(mean), 0.003);
  EXPECT_GT(largest, 0.9) << "a whole step, where dither has half of one";
  EXPECT_LT(largest, 1.001);
}

TEST(ObservedIdentity, IsExactInEveryDtypeItsRowsCameFrom) {
  RowSource source(45, 32);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const TileContext context{.head_dim = 32, .dtype = dtype};
    Row rows = make_tile(source, context), decoded(rows.size());
    for (float& x : rows) {
      if (dtype == DType::kBF16) x = bf16_to_float(bf16_nearest(x));
      if (dtype == DType::kF16) x = half_to_float(half_nearest(x));
    }
    std::vector<uint8_t> payload(static_cast<size_t>(identity_bytes(context)));
    EXPECT_EQ(payload.size(), rows.size() * dtype_bytes(dtype));
    identity_encode(context, rows.data(), payload.data());
    identity_decode(context, payload.data(), decoded.data());
    EXPECT_EQ(decoded, rows);
  }
}

}  // namespace
}  // namespace assay::kv::testing
