// Attention over every compressed pool against float64: what it serves, what its meter sums and what its meter bounds;
// the same bits in any batch and on any number of threads; blind to bytes beyond the sequence.
#include "kernels/cpu/pool_attention.h"

#include <array>
#include <cstring>

#include "kernels/cpu/pool_write.h"
#include "tests/kernels/pool_truth.h"

namespace assay {
namespace {

class PoolAttention : public testing::TestWithParam<PoolCase> {};

struct Cell {
  int32_t sequence, position, row;  // row of the result
  int32_t stored;
};

struct Step {
  std::vector<PoolModel::Slice> slices;
  std::vector<Cell> cells;
};

// Sequence 0: prefill in two chunks, then decode. Sequence 1: one chunk and decode, in company.
const std::vector<Step> kSteps = {
    {{{1, 0, 600}, {0, 0, 37}}, {{1, 599, 599, 0}, {0, 20, 620, 0}}},
    {{{0, 37, 32}, {1, 600, 1}}, {{0, 37, 0, 37}, {0, 52, 15, 37}, {0, 68, 31, 37}, {1, 600, 32, 600}}},
    {{{1, 601, 99}, {0, 69, 1}}, {{1, 601, 0, 601}, {1, 650, 49, 601}, {1, 699, 98, 601}, {0, 69, 99, 69}}}};

int32_t compressed_tokens(const PoolModel& m, const Cell& cell, int32_t h) {
  int32_t count = 0;
  for (int32_t t = 0; t < cell.stored; ++t) count += !m.is_exact(cell.sequence, t, m.kv_head(h));
  return count;
}

// Sums are those of the radii, raised by at most the arithmetic's part of them.
void expect_sums(const kv::MeterSums<float>& got, const kv::MeterSums<double>& expected) {
  ASSERT_NEAR(got.weight, expected.weight, 1e-4 * expected.weight);
  const double b1 = got.b1 / static_cast<double>(got.weight), want_b1 = expected.b1 / expected.weight;
  const double b2 = got.b2 / static_cast<double>(got.weight), want_b2 = expected.b2 / expected.weight;
  const double value = got.value_error / static_cast<double>(got.weight);
  const double want_value = expected.value_error / expected.weight;
  ASSERT_GE(b1, want_b1 * (1 - 1e-4) - 1e-7);
  ASSERT_LE(b1, want_b1 * 1.03 + 1e-3);
  ASSERT_GE(b2, want_b2 * (1 - 1e-4) - 1e-7);
  ASSERT_LE(b2, want_b2 * 1.06 + 1e-3);
  ASSERT_GE(got.radius_max, expected.radius_max * (1 - 1e-5));
  ASSERT_LE(got.radius_max, expected.radius_max * 1.03 + 1e-3);
  ASSERT_GE(value, want_value * (1 - 1e-4));
  ASSERT_LE(value, want_value * 1.03);
}

// The radius in use: that which bounds the errors here (the dither does not know these rows).
const kv::MeterSums<float>& sums_in_use(const kv::MeterCell& cell, kv::RadiusKind radius) {
  return radius == kv::RadiusKind::kWitness ? cell.certain : cell.conditional;
}

void expect_bounds(const PoolModel& m, const kv::MeterCell& cell, const CellTruth& truth, double largest_value) {
  const kv::MeterSums<float>& sums = sums_in_use(cell, m.radius);
  for (kv::BoundKind kind : {kv::BoundKind::kBest, kv::BoundKind::kBox, kv::BoundKind::kEForm, kv::BoundKind::kTanh}) {
    ASSERT_GE(kv::meter(kv::meter_inputs(sums, cell.serial_terms), kind, cell.weight_rounding).tv, truth.tv);
    if (m.radius == kv::RadiusKind::kDither) continue;
    ASSERT_GE(kv::meter(kv::meter_inputs(cell.certain, cell.serial_terms), kind, cell.weight_rounding).tv, truth.tv);
  }
  const kv::Meter<float> best =
      kv::meter(kv::meter_inputs(sums, cell.serial_terms), kv::BoundKind::kBest, cell.weight_rounding);
  ASSERT_GE(2 * best.tv * largest_value + kv::value_error(sums, cell.serial_terms), truth.output_error);
}

// Largest |v| of all rows a cell sees.
double largest_value(const PoolModel& m, const Cell& cell, int32_t h, double stored) {
  for (int32_t t = cell.stored; t <= cell.position; ++t) {
    const float* v = m.query(cell.sequence, t, m.shape.num_heads + m.shape.num_kv_heads + m.kv_head(h));
    stored = std::max(stored, static_cast<double>(kv::norm_up(v, m.shape.head_dim)));
  }
  return stored;
}

void check_cell(const PoolModel& m, const Cell& cell, int32_t h, const CellTruth& truth, int32_t compressed,
                const PoolModel::Result& result) {
  const size_t dim = static_cast<size_t>(m.shape.head_dim);
  const size_t index = static_cast<size_t>(cell.row * m.shape.num_heads + h);
  for (size_t c = 0; c < dim; ++c) ASSERT_NEAR(result.out[index * dim + c], truth.out[c], 2e-5) << cell.position;
  const kv::MeterCell& metered = result.cells[index];
  ASSERT_EQ(metered.compressed_tokens, compressed);
  if (compressed == 0) return;
  if (m.radius != kv::RadiusKind::kDither) expect_sums(metered.certain, truth.sums);
  expect_sums(sums_in_use(metered, m.radius), truth.conditional);
  ASSERT_LE(metered.value_norm_low, truth.largest_value);
  ASSERT_GE(metered.value_norm_low, truth.largest_value * (1 - 0x1p-9));
  expect_bounds(m, metered, truth, largest_value(m, cell, h, truth.largest_value));
}

// `before(step)` may change what is exact.
template <class Before>
void check_session(const PoolCase& c, const Before& before) {
  PoolModel m(c, {70, 700});
  CpuOps ops(2);
  for (size_t s = 0; s < kSteps.size(); ++s) {
    before(m, s);
    std::vector<CellTruth> truths;  // of what is stored when attention reads it
    std::vector<int32_t> compressed;
    for (const Cell& cell : kSteps[s].cells) {
      for (int32_t h = 0; h < m.shape.num_heads; ++h) {
        truths.push_back(truth_of(m, cell.sequence, cell.position, h, cell.stored));
        compressed.push_back(compressed_tokens(m, cell, h));
      }
    }
    const PoolModel::Result result = m.run(ops, kSteps[s].slices);
    size_t next = 0;
    for (const Cell& cell : kSteps[s].cells) {
      for (int32_t h = 0; h < m.shape.num_heads; ++h, ++next) {
        ASSERT_NO_FATAL_FAILURE(check_cell(m, cell, h, truths[next], compressed[next], result))
            << "step " << s << " position " << cell.position << " head " << h;
      }
    }
  }
}

TEST_P(PoolAttention, MatchesDoublePrecisionAndItsMeterHolds) {
  check_session(GetParam(), [](PoolModel&, size_t) {});
}

// Some pages of one KV head are exact: their rows enter the same softmax with the model's query and radius 0.
TEST_P(PoolAttention, ExactPagesAreReadAsExact) {
  if (GetParam().pool.find("kivi") != std::string::npos || GetParam().pool.find("kvquant") != std::string::npos) {
    return;  // these have exact pages of their own
  }
  check_session(GetParam(), [](PoolModel& m, size_t step) {
    if (step == 1) {
      for (int32_t position : {0, 36}) m.make_exact(0, position, 0);
      for (int32_t position : {0, 250, 599}) m.make_exact(1, position, m.shape.num_kv_heads - 1);
    }
    for (int32_t t = 0; step == 2 && t < 601; t += m.cache.page_tokens) m.make_exact(1, t, 0);
  });
}

// Loud keys and queries: radii from 0 to beyond saturation, zero violations.
TEST_P(PoolAttention, MeterHoldsForHostileRows) {
  const PoolCase& c = GetParam();
  int64_t cells = 0, small = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    PoolModel model(c, {90});
    kv::testing::RowSource source(seed, c.dim);
    const float loud = std::array{0.05f, 0.3f, 1.0f, 4.0f}[seed % 4];
    for (int32_t p = 0; p < 90; ++p) {
      for (int32_t h = 0; h < model.shape.num_heads + 2 * model.shape.num_kv_heads; ++h) {
        kv::testing::Row row = source.hostile();
        float norm = 0;
        for (float x : row) norm += x * x;
        const float target = loud * std::sqrt(static_cast<float>(c.dim)) / std::sqrt(norm);
        for (int32_t i = 0; i < c.dim && norm > 0 && std::isfinite(target); ++i) row[static_cast<size_t>(i)] *= target;
        std::copy(row.begin(), row.end(), model.qkv[0].data() + p * model.shape.qkv_columns() + h * c.dim);
      }
    }
    CpuOps ops(2);
    model.run(ops, {{0, 0, 64}});
    const PoolModel::Result result = model.run(ops, {{0, 64, 26}});
    for (int32_t p = 64; p < 90; p += 4) {
      for (int32_t h = 0; h < model.shape.num_heads; ++h) {
        const kv::MeterCell& cell = result.cells[static_cast<size_t>((p - 64) * model.shape.num_heads + h)];
        const CellTruth truth = truth_of(model, 0, p, h, 64);
        const kv::MeterInputs<float> in = kv::meter_inputs(sums_in_use(cell, c.radius), cell.serial_terms);
        for (kv::BoundKind kind :
             {kv::BoundKind::kBest, kv::BoundKind::kBox, kv::BoundKind::kEForm, kv::BoundKind::kTanh}) {
          ASSERT_GE(kv::meter(in, kind, cell.weight_rounding).tv, truth.tv) << "seed " << seed << " position " << p;
        }
        ++cells;
        small += kv::meter(in, kv::BoundKind::kBest, cell.weight_rounding).tv < 0.2f;
      }
    }
  }
  EXPECT_GT(small, cells / 20);  // the bounds say something
  EXPECT_TRUE(small < cells || c.pool == "observed:identity");
}

TEST_P(PoolAttention, BatchesAndThreadsDoNotMatter) {
  const PoolCase& c = GetParam();
  const auto run = [&](int threads, bool company) {
    PoolModel model(c, {1300, 40});
    CpuOps ops(threads);
    std::vector<PoolModel::Result> results;
    for (const PoolModel::Slice& slice : {PoolModel::Slice{0, 0, 1100}, {0, 1100, 100}, {0, 1200, 1}, {0, 1201, 1}}) {
      std::vector<PoolModel::Slice> slices = {slice};
      if (company && slice.first <= 1100) slices.push_back({1, slice.first == 0 ? 0 : 37, slice.first == 0 ? 37 : 3});
      results.push_back(model.run(ops, slices));
    }
    return results;
  };
  const std::vector<PoolModel::Result> expected = run(1, false);
  for (int threads : {1, 4}) {
    for (bool company : {false, true}) {
      const std::vector<PoolModel::Result> got = run(threads, company);
      for (size_t i = 0; i < got.size(); ++i) {
        const std::vector<float>& want = expected[i].out;
        ASSERT_EQ(std::memcmp(got[i].out.data(), want.data(), want.size() * sizeof(float)), 0) << i << " " << threads;
        ASSERT_EQ(std::memcmp(got[i].cells.data(), expected[i].cells.data(),
                              expected[i].cells.size() * sizeof(kv::MeterCell)),
                  0);
      }
    }
  }
}

// A row too large for the pool is exact-only: nothing that reads it is certified.
TEST(PoolAttentionExtremes, ExactOnlyRowsSaturate) {
  PoolModel model({2, 3, 128, 16, DType::kBF16}, {40});
  const int32_t first_key = model.shape.num_heads * model.shape.head_dim;
  model.qkv[0][static_cast<size_t>(5 * model.shape.qkv_columns() + first_key)] = 1e12f;
  CpuOps ops(1);
  model.run(ops, {{0, 0, 39}});
  const PoolModel::Result result = model.run(ops, {{0, 39, 1}});
  for (int32_t h = 0; h < 6; ++h) {
    const kv::MeterCell& cell = result.cells[static_cast<size_t>(h)];
    const kv::CellVerdict verdict = kv::judge_cell(cell, {}, kv::BoundKind::kBest, kv::RadiusKind::kWitness);
    EXPECT_EQ(verdict.meter.tv == 1.0f, h < 3) << h;  // the KV head that holds it
    EXPECT_EQ(std::isinf(verdict.meter.raw), h < 3);
    EXPECT_EQ(verdict.label == kv::CellLabel::kRiskRanked && verdict.meter.raw >= 1, h < 3);
  }
}

using kv::RadiusKind;

INSTANTIATE_TEST_SUITE_P(
    Pools, PoolAttention,
    testing::Values(
        PoolCase{2, 3, 128, 16, DType::kBF16}, PoolCase{1, 7, 64, 32, DType::kF32},
        PoolCase{2, 1, 16, 16, DType::kBF16}, PoolCase{2, 4, 32, 48, DType::kF16},
        PoolCase{1, 2, 64, 16, DType::kF32, false, true}, PoolCase{1, 5, 128, 16, DType::kF32, true, false},
        PoolCase{1, 2, 256, 16, DType::kBF16},
        PoolCase{2, 3, 128, 16, DType::kBF16, true, true, "certified", RadiusKind::kBoth, DitherStream::kPeriodic},
        PoolCase{1, 2, 64, 16, DType::kBF16, true, true, "certified", RadiusKind::kDither, DitherStream::kPerSlot},
        PoolCase{1, 2, 16, 16, DType::kBF16, true, true, "certified", RadiusKind::kBoth, DitherStream::kPeriodic},
        PoolCase{2, 3, 128, 16, DType::kBF16, true, true, "witcert", RadiusKind::kDither, DitherStream::kPeriodic},
        PoolCase{1, 4, 128, 16, DType::kBF16, true, true, "witcert", RadiusKind::kDither, DitherStream::kPeriodic, 4},
        PoolCase{1, 1, 64, 32, DType::kF32, true, true, "witcert", RadiusKind::kDither, DitherStream::kPerSlot, 16},
        PoolCase{2, 1, 16, 16, DType::kF16, true, true, "witcert", RadiusKind::kDither, DitherStream::kPeriodic, 2},
        PoolCase{2, 2, 64, 16, DType::kBF16, true, true, "observed:rtn-int8"},
        PoolCase{2, 1, 128, 32, DType::kBF16, true, true, "observed:rtn-int8-tensor"},
        PoolCase{1, 3, 64, 16, DType::kBF16, true, true, "observed:fp8-e4m3"},
        PoolCase{1, 2, 64, 16, DType::kF16, true, true, "observed:rtn-int4"},
        PoolCase{2, 2, 64, 32, DType::kBF16, true, true, "observed:kivi-2"},
        PoolCase{1, 2, 128, 64, DType::kBF16, true, true, "observed:kvquant-4"},
        PoolCase{1, 2, 64, 16, DType::kBF16, true, true, "observed:stochastic-int8"},
        PoolCase{1, 2, 16, 16, DType::kF32, true, true, "observed:identity"}),
    [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace assay
