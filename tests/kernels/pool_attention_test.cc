// Attention over the certified pool against float64: what it serves, what its meter sums and what its meter bounds; the
// same bits in any batch and on any number of threads; blind to bytes beyond the sequence.
#include "kernels/cpu/pool_attention.h"

#include <cstring>

#include "kernels/cpu/pool_write.h"
#include "tests/kernels/pool_model.h"

namespace assay {
namespace {

class PoolAttention : public testing::TestWithParam<PoolCase> {};

struct Cell {
  int32_t sequence, position, row;  // row of the result
  int32_t stored;
};

// Sequence 0: prefill in two chunks, then decode. Sequence 1: one chunk and decode, in company.
struct Session {
  explicit Session(const PoolCase& c) : model(c, {70, 700}) {}
  std::vector<std::pair<PoolModel::Result, std::vector<Cell>>> execute(Ops& ops) {
    std::vector<std::pair<PoolModel::Result, std::vector<Cell>>> steps;
    steps.emplace_back(model.run(ops, {{1, 0, 600}, {0, 0, 37}}), std::vector<Cell>{{1, 599, 599, 0}, {0, 20, 620, 0}});
    steps.emplace_back(model.run(ops, {{0, 37, 32}, {1, 600, 1}}),
                       std::vector<Cell>{{0, 37, 0, 37}, {0, 52, 15, 37}, {0, 68, 31, 37}, {1, 600, 32, 600}});
    steps.emplace_back(model.run(ops, {{1, 601, 99}, {0, 69, 1}}),
                       std::vector<Cell>{{1, 601, 0, 601}, {1, 650, 49, 601}, {1, 699, 98, 601}, {0, 69, 99, 69}});
    return steps;
  }
  PoolModel model;
};

TEST_P(PoolAttention, MatchesDoublePrecisionAndItsMeterHolds) {
  Session run(GetParam());
  CpuOps ops(2);
  const size_t dim = static_cast<size_t>(run.model.shape.head_dim);
  for (const auto& [result, cells] : run.execute(ops)) {
    for (const Cell& cell : cells) {
      for (int32_t h = 0; h < run.model.shape.num_heads; ++h) {
        const size_t index = static_cast<size_t>(cell.row * run.model.shape.num_heads + h);
        const CellTruth truth = truth_of(run.model, cell.sequence, cell.position, h, cell.stored);
        for (size_t c = 0; c < dim; ++c) ASSERT_NEAR(result.out[index * dim + c], truth.out[c], 2e-5) << cell.position;
        const kv::MeterCell& metered = result.cells[index];
        ASSERT_EQ(metered.compressed_tokens, cell.stored);
        if (cell.stored == 0) continue;
        const kv::MeterSums<double> expected = truth.sums;
        ASSERT_NEAR(metered.certain.weight, expected.weight, 1e-4 * expected.weight);
        ASSERT_NEAR(metered.certain.b1 / metered.certain.weight, expected.b1 / expected.weight,
                    1e-2 * expected.b1 / expected.weight);
        ASSERT_NEAR(metered.certain.b2 / metered.certain.weight, expected.b2 / expected.weight,
                    2e-2 * expected.b2 / expected.weight);
        ASSERT_NEAR(metered.certain.radius_max, expected.radius_max, 1e-2 * expected.radius_max);
        ASSERT_NEAR(metered.certain.value_error / metered.certain.weight, expected.value_error / expected.weight,
                    1e-4 * expected.value_error / expected.weight);
        for (kv::BoundKind kind :
             {kv::BoundKind::kBest, kv::BoundKind::kBox, kv::BoundKind::kEForm, kv::BoundKind::kTanh}) {
          const kv::Meter<float> meter =
              kv::meter(kv::meter_inputs(metered.certain, metered.serial_terms), kind, metered.weight_rounding);
          ASSERT_GE(meter.tv, truth.tv);
          if (kind != kv::BoundKind::kBest) continue;
          const double values = kv::value_error(metered.certain, metered.serial_terms);
          double largest = truth.largest_value;
          ASSERT_LE(metered.value_norm_low, largest);
          ASSERT_GE(metered.value_norm_low, largest * (1 - 0x1p-9));
          for (int32_t t = cell.stored; t <= cell.position; ++t) {
            const float* v = run.model.query(
                cell.sequence, t, run.model.shape.num_heads + run.model.shape.num_kv_heads + run.model.kv_head(h));
            largest = std::max(largest, static_cast<double>(kv::norm_up(v, static_cast<int>(dim))));
          }
          ASSERT_GE(2 * meter.tv * largest + values, truth.output_error);
        }
      }
    }
  }
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
    model.run(ops, {{0, 0, 61}});
    const PoolModel::Result result = model.run(ops, {{0, 61, 29}});
    for (int32_t p = 61; p < 90; p += 4) {
      for (int32_t h = 0; h < model.shape.num_heads; ++h) {
        const kv::MeterCell& cell = result.cells[static_cast<size_t>((p - 61) * model.shape.num_heads + h)];
        const CellTruth truth = truth_of(model, 0, p, h, 61);
        const kv::MeterInputs<float> in = kv::meter_inputs(cell.certain, cell.serial_terms);
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
  EXPECT_LT(small, cells);
}

TEST_P(PoolAttention, BatchesAndThreadsDoNotMatter) {
  const PoolCase& c = GetParam();
  const auto run = [&](int threads, bool company) {
    PoolModel model(c, {1300, 40});
    CpuOps ops(threads);
    std::vector<PoolModel::Result> results;
    for (const PoolModel::Slice& slice : {PoolModel::Slice{0, 0, 1100}, {0, 1100, 100}, {0, 1200, 1}, {0, 1201, 1}}) {
      std::vector<PoolModel::Slice> slices = {slice};
      if (company) slices.push_back({1, slice.first == 0 ? 0 : 37, slice.first == 0 ? 37 : 3});
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

INSTANTIATE_TEST_SUITE_P(Shapes, PoolAttention,
                         testing::Values(PoolCase{2, 3, 128, 16, DType::kBF16}, PoolCase{1, 7, 64, 32, DType::kF32},
                                         PoolCase{2, 1, 16, 16, DType::kBF16}, PoolCase{2, 4, 32, 48, DType::kF16},
                                         PoolCase{1, 2, 64, 16, DType::kF32, false, true},
                                         PoolCase{1, 5, 128, 16, DType::kF32, true, false}),
                         [](const auto& info) {
                           const PoolCase& c = info.param;
                           return "kv" + std::to_string(c.kv_heads) + "g" + std::to_string(c.group) + "d" +
                                  std::to_string(c.dim) + "p" + std::to_string(c.page_tokens) + dtype_name(c.dtype) +
                                  (c.balance ? "" : "NoBalance") + (c.rotation ? "" : "NoRotation");
                         });

}  // namespace
}  // namespace assay
