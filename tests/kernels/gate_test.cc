// The gate over every kind of compressed pool: what it emits, what it reads back, what it does with rows it cannot trust.
#include "kernels/cpu/gate.h"

#include <cstring>
#include <memory>

#include "kernels/cpu/attention_log.h"
#include "kernels/cpu/elements.h"
#include "tests/kernels/pool_truth.h"

namespace assay {
namespace {

constexpr int32_t kLength = 330;

// Exact attention in float64; the first `stored` rows (all but the query's own by default) rounded to the pool's dtype.
std::vector<double> exact_output(const PoolModel& m, int32_t sequence, int32_t position, int32_t head, int32_t stored = -1) {
  const int32_t dim = m.shape.head_dim, h = m.kv_head(head);
  const float* q = m.query(sequence, position, head);
  if (stored < 0) stored = position;
  const auto value = [&](float x, int32_t t) { return t < stored ? m.in_dtype(x) : static_cast<double>(x); };
  std::vector<double> weights, out(static_cast<size_t>(dim));
  for (int32_t t = 0; t <= position; ++t) {
    const float* k = m.query(sequence, t, m.shape.num_heads + h);
    double logit = 0;
    for (int32_t c = 0; c < dim; ++c) logit += q[c] * value(k[c], t);
    weights.push_back(logit / std::sqrt(static_cast<double>(dim)));
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (int32_t t = 0; t <= position; ++t) {
    const float* v = m.query(sequence, t, m.shape.num_heads + m.shape.num_kv_heads + h);
    for (int32_t c = 0; c < dim; ++c) out[static_cast<size_t>(c)] += weights[static_cast<size_t>(t)] / sum * value(v[c], t);
  }
  return out;
}

class GateTest : public testing::TestWithParam<PoolCase> {
 protected:
  // A sequence of kLength - 1 tokens in the cache; the last one is to be decoded.
  std::unique_ptr<PoolModel> filled(int32_t repair_slots) {
    auto model = std::make_unique<PoolModel>(GetParam(), std::vector<int32_t>{kLength + 20});
    model->add_backing(repair_slots);
    model->gate.on = false;
    model->run(ops_, {{0, 0, 200}});
    model->run(ops_, {{0, 200, kLength - 201}});
    model->gate.on = true;
    model->gate.repair.step = 1;
    model->thresholds.policy = kv::GatePolicy::kRepair;
    model->gate.audit = &audit_;
    return model;
  }
  PoolModel::Result decode(PoolModel& model, int32_t position = kLength - 1) {
    ++model.gate.repair.step;
    return model.run(ops_, {{0, position, 1}});
  }
  static kv::CellVerdict verdict(const PoolModel& model, const kv::MeterCell& cell) {
    return kv::judge_cell(cell, model.thresholds, kv::BoundKind::kBest, model.radius);
  }
  static bool any_over(const PoolModel& model, const PoolModel::Result& result) {
    for (const kv::MeterCell& cell : result.cells) {
      if (verdict(model, cell).label == kv::CellLabel::kRiskRanked) return true;
    }
    return false;
  }
  // A tau that about half of the heads are over, and one at least, when nothing is repaired.
  float median_meter(PoolModel& model) {
    model.thresholds.policy = kv::GatePolicy::kObserve;
    const PoolModel::Result result = decode(model);
    model.thresholds.policy = kv::GatePolicy::kRepair;
    std::vector<float> meters;
    for (const kv::MeterCell& cell : result.cells) meters.push_back(verdict(model, cell).meter.tv);
    std::sort(meters.begin(), meters.end());
    return 0.99f * meters[meters.size() / 2];
  }
  void expect_no_violation() {
    EXPECT_EQ(audit_.deterministic.violations + audit_.conditional.violations, 0u);
  }

  CpuOps ops_{2};
  kv::AuditTallies audit_;
};

TEST_P(GateTest, EveryRowIsWrittenWithItsToken) {
  const auto model = filled(0);
  const kv::BackingView& backing = model->cache.backing;
  for (int32_t t = 0; t < kLength - 1; ++t) {
    for (int32_t h = 0; h < model->shape.num_kv_heads; ++h) {
      const int64_t block = backing.block(1, model->page_of(0, t), h);
      ASSERT_TRUE(kv::row_is_intact(backing, block, t % backing.page_tokens)) << t;
      for (int32_t side = 0; side < 2; ++side) {
        const std::byte* row = side == 0 ? backing.k_row(block, t % backing.page_tokens)
                                         : backing.v_row(block, t % backing.page_tokens);
        const float* exact = model->query(0, t, model->shape.num_heads + side * model->shape.num_kv_heads + h);
        with_elements(model->cache.dtype, row, [&](const auto* elements) {
          for (int32_t c = 0; c < model->shape.head_dim; ++c) {
            ASSERT_EQ(element_to_f32(elements[c]), model->in_dtype(exact[c]));
          }
        });
      }
    }
  }
  EXPECT_FALSE(kv::row_is_intact(backing, backing.block(1, model->page_of(0, kLength), 0), kLength % backing.page_tokens));
}

TEST_P(GateTest, NoDecodeCellIsOverTauWhileTheRowsAreThere) {
  for (const float share : {1.0f, 0.5f, 0.0f}) {
    const auto model = filled(64);
    model->thresholds.tau = std::max(share * median_meter(*model), 1e-6f);
    model->thresholds.tau_v = 0.05f;
    audit_ = {};
    const PoolModel::Result result = decode(*model);
    EXPECT_FALSE(any_over(*model, result)) << share;
    const kv::GateTally& tally = result.tallies[0].gate;
    EXPECT_GT(tally.refined + tally.paged + tally.whole_head, 0u);
    EXPECT_EQ(tally.bytes_in % static_cast<uint64_t>(2 * model->cache.backing.row_bytes), 0u);
    EXPECT_EQ(tally.pages_not_backed + tally.checksum_failures, 0u);
    for (const kv::MeterCell& cell : result.cells) {
      EXPECT_EQ(verdict(*model, cell).label == kv::CellLabel::kExact, cell.compressed_tokens == 0);
    }
    expect_no_violation();
  }
}

TEST_P(GateTest, WhatIsServedIsExactAttentionWhereNothingCompressedIsLeft) {
  const auto model = filled(64);
  model->thresholds.tau = 1e-9f;
  const PoolModel::Result result = decode(*model);
  for (int32_t h = 0; h < model->shape.num_heads; ++h) {
    EXPECT_EQ(result.cells[static_cast<size_t>(h)].compressed_tokens, 0);
    const std::vector<double> exact = exact_output(*model, 0, kLength - 1, h);
    for (size_t c = 0; c < exact.size(); ++c) {
      EXPECT_NEAR(result.out[static_cast<size_t>(h) * exact.size() + c], exact[c], 2e-5);
    }
  }
}

TEST_P(GateTest, RepairsStayAndAreHitInTheNextStep) {
  const auto model = filled(64);
  model->thresholds.tau = median_meter(*model);
  const kv::GateTally first = decode(*model).tallies[0].gate;
  ASSERT_GT(first.pages_in + first.refined, 0u);
  EXPECT_EQ(first.repair_hits, 0u);
  const kv::GateTally again = decode(*model).tallies[0].gate;
  EXPECT_EQ(again.pages_in, 0u) << "the same query over the same repairs";
  EXPECT_EQ(again.repair_hits, first.pages_in);
  const PoolModel::Result next = decode(*model, kLength);
  EXPECT_FALSE(any_over(*model, next));
  expect_no_violation();
}

TEST_P(GateTest, ACacheOfOnePageOrNoneStillRepairs) {
  for (const int32_t slots : {0, 1}) {
    const auto model = filled(slots);
    model->thresholds.tau = median_meter(*model);
    uint64_t pages = 0;
    for (int32_t position = kLength - 1; position < kLength + 10; ++position) {
      const PoolModel::Result result = decode(*model, position);
      EXPECT_FALSE(any_over(*model, result)) << slots << " " << position;
      pages += result.tallies[0].gate.pages_in;
    }
    EXPECT_GT(pages, 1u);
    EXPECT_TRUE(slots > 0 || model->evictions == 0);
    expect_no_violation();
  }
}

TEST_P(GateTest, CorruptRowsAreCountedAndNeverServed) {
  const auto model = filled(64);
  model->thresholds.tau = 1e-9f;
  model->thresholds.policy = kv::GatePolicy::kObserve;
  const PoolModel::Result ungated = decode(*model);
  audit_ = {};
  for (int32_t page = 0; page * model->cache.page_tokens < kLength - 1; ++page) {
    for (int32_t h = 0; h < model->shape.num_kv_heads; ++h) {
      const kv::BackingView& backing = model->cache.backing;
      backing.v_row(backing.block(1, model->page_of(0, page * model->cache.page_tokens), h), 0)[3] ^= std::byte{0x10};
    }
  }
  model->thresholds.policy = kv::GatePolicy::kRepair;
  const PoolModel::Result gated = decode(*model);
  EXPECT_TRUE(any_over(*model, gated));
  EXPECT_GT(gated.tallies[0].gate.checksum_failures, 0u);
  EXPECT_GT(gated.tallies[0].gate.pages_not_backed, 0u);
  EXPECT_EQ(gated.tallies[0].gate.pages_in, 0u);
  EXPECT_EQ(std::memcmp(ungated.out.data(), gated.out.data(), gated.out.size() * sizeof(float)), 0);
  EXPECT_EQ(audit_.deterministic.cells + audit_.conditional.cells, 0u) << "there is nothing to compare with";
}

TEST_P(GateTest, PagesWithoutRoomAreLeftAsTheyAre) {
  const auto model = filled(64);
  model->thresholds.tau = 1e-9f;
  model->drop_backing(0, 40);
  const PoolModel::Result result = decode(*model);
  EXPECT_TRUE(any_over(*model, result));
  EXPECT_GT(result.tallies[0].gate.pages_not_backed, 0u);
  EXPECT_GT(result.tallies[0].gate.pages_in, 0u) << "the others are read";
  for (const kv::MeterCell& cell : result.cells) EXPECT_EQ(cell.compressed_tokens, model->cache.page_tokens);
}

TEST_P(GateTest, AnAuditAloneChangesNothing) {
  const auto model = filled(8);
  model->thresholds.policy = kv::GatePolicy::kObserve;
  model->gate.on = false;
  const PoolModel::Result plain = decode(*model);
  model->gate.on = true;
  const PoolModel::Result audited = decode(*model);
  EXPECT_EQ(std::memcmp(plain.out.data(), audited.out.data(), plain.out.size() * sizeof(float)), 0);
  const bool dither = model->radius == kv::RadiusKind::kDither;
  const kv::AuditTally& tally = dither ? audit_.conditional : audit_.deterministic;
  EXPECT_EQ(tally.cells, static_cast<uint64_t>(model->shape.num_heads));
  expect_no_violation();
  uint64_t warned = 0;
  for (int i = 0; i < kv::kNumRawBuckets; ++i) warned += audit_.warnings.harmful[i] + audit_.warnings.harmless[i];
  EXPECT_EQ(warned, tally.cells);
  EXPECT_EQ(audit_.repairs.cells, 0u);
}

TEST_P(GateTest, TheAuditSeesWhatARepairIsWorth) {
  const auto model = filled(64);
  model->thresholds.tau = 1e-9f;
  audit_ = {};
  decode(*model);
  EXPECT_EQ(audit_.repairs.cells, static_cast<uint64_t>(model->shape.num_heads));
  EXPECT_LT(audit_.repairs.error_after, 1e-3 * audit_.repairs.error_before) << "nothing compressed is left";
  EXPECT_EQ(audit_.repairs.rows_by_pages[0], 0u);
  uint64_t rows = 0;
  for (const uint64_t count : audit_.repairs.rows_by_pages) rows += count;
  EXPECT_EQ(rows, static_cast<uint64_t>(model->shape.num_kv_heads));
}

TEST_P(GateTest, ARestoredPageHasTheBitsThatWereWritten) {
  const auto model = filled(0);
  PagedKvView& cache = model->cache;
  const int32_t whole = (kLength - 1) / cache.page_tokens;
  const auto bytes_of = [&](int32_t page) {
    const std::byte* from = cache.record(1, model->page_of(0, page * cache.page_tokens), 0, 0);
    std::vector<std::byte> bytes(from, from + cache.page_layer_bytes());
    for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
      const uint16_t norm = cache.value_norms(1, h)[model->page_of(0, page * cache.page_tokens)];
      bytes.push_back(static_cast<std::byte>(norm & 0xff));
      bytes.push_back(static_cast<std::byte>(norm >> 8));
    }
    return bytes;
  };
  std::vector<std::vector<std::byte>> before;
  std::vector<PageToRestore> pages;
  for (int32_t page = 0; page < whole; ++page) {
    before.push_back(bytes_of(page));
    pages.push_back({model->page_of(0, page * cache.page_tokens), page * cache.page_tokens});
    std::fill_n(cache.record(1, pages.back().page, 0, 0), cache.page_layer_bytes(), std::byte{0x55});
    for (int32_t h = 0; h < cache.num_kv_heads; ++h) cache.value_norms(1, h)[pages.back().page] = 0x7bff;
  }
  // Layer 0 was never written, so its rows must be refused.
  EXPECT_EQ(ops_.kv_restore(pages, cache), int64_t{whole} * cache.page_tokens * cache.num_kv_heads);
  for (int32_t page = 0; page < whole; ++page) EXPECT_EQ(bytes_of(page), before[static_cast<size_t>(page)]) << page;
}

TEST_P(GateTest, PolicyExactReadsNothingCompressed) {
  const auto model = filled(8);
  model->thresholds.policy = kv::GatePolicy::kExact;
  const PoolModel::Result result = model->run(ops_, {{0, kLength - 1, 8}});
  for (int32_t row = 0; row < 8; ++row) {
    for (int32_t h = 0; h < model->shape.num_heads; ++h) {
      const size_t index = static_cast<size_t>(row * model->shape.num_heads + h);
      EXPECT_EQ(result.cells[index].compressed_tokens, 0);
      const std::vector<double> exact = exact_output(*model, 0, kLength - 1 + row, h, kLength - 1);
      for (size_t c = 0; c < exact.size(); ++c) EXPECT_NEAR(result.out[index * exact.size() + c], exact[c], 2e-5);
    }
  }
  EXPECT_EQ(result.tallies[0].gate.whole_layer, static_cast<uint64_t>(8 * model->shape.num_heads));
}

// Weights that underflowed may belong to the largest exact logits where radii are that large.
TEST(PageBound, CertifiesNothingAboveTheLargestRadius) {
  AttentionLog log(1, 40);
  for (int32_t t = 0; t < 40; ++t) {
    log.view().weight[t] = t < 16 ? 0.0f : 1.0f;
    log.view().max[t] = 0.0f;
    log.view().radius[t] = log.view().other[t] = t < 16 ? 120.0f : 1e-4f;
    log.view().rho[t] = 0.0f;
  }
  EXPECT_EQ(page_bound(log.view(), 0, 16, 39, 10, false), kv::infinity());
  for (int32_t t = 0; t < 16; ++t) log.view().radius[t] = 39.0f;
  EXPECT_LT(page_bound(log.view(), 0, 16, 39, 10, false), 1e-3f);
  EXPECT_GT(page_bound(log.view(), 0, 16, 39, 1 << 20, false), 0.1f) << "each factor costs";
  log.view().radius[39] = NAN;
  EXPECT_EQ(page_bound(log.view(), 0, 16, 39, 10, false), kv::infinity());
}

const PoolCase kCases[] = {
    {2, 3, 64, 16, DType::kBF16},
    {1, 4, 128, 32, DType::kF16},
    {2, 1, 32, 16, DType::kF32},
    {2, 3, 64, 16, DType::kBF16, true, true, "certified", kv::RadiusKind::kBoth, DitherStream::kPeriodic},
    {2, 2, 64, 16, DType::kBF16, true, true, "witcert", kv::RadiusKind::kDither, DitherStream::kPeriodic, 4},
    {2, 2, 64, 16, DType::kBF16, true, true, "observed:rtn-int4"},
    {2, 2, 64, 32, DType::kBF16, true, true, "observed:kivi-2"},
};
INSTANTIATE_TEST_SUITE_P(Pools, GateTest, testing::ValuesIn(kCases), [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace assay
