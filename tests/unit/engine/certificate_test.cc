// What a request is told of the meter, and what the engine tells operations: against an executor whose meter is a
// script.
#include <cmath>
#include <functional>

#include "engine/core/certificate_rules.h"
#include "kernels/kv/radius.h"
#include "tests/unit/engine/engine_fixture.h"

namespace assay {
namespace {

using kv::Phase;
using test::EngineTest;
using test::FakeExecutor;
using test::FakeModelOptions;
using testing::HasSubstr;

constexpr auto kDecode = static_cast<size_t>(Phase::kDecode), kPrefill = static_cast<size_t>(Phase::kPrefill);

// A pool with a meter: 2 layers, 3 heads; each slice gets what `meter_of` says.
class MeteredExecutor : public FakeExecutor {
 public:
  MeteredExecutor(FakeModelOptions options, const std::string& pool_name, bool has_backing)
      : FakeExecutor(std::move(options)) {
    pool_ = FakeExecutor::pool();
    pool_.pool = pool_name;
    pool_.has_backing = has_backing;
    model_ = FakeExecutor::model();
    model_.num_layers = 2;
    model_.num_heads = 3;
  }
  absl::StatusOr<StepResult> execute(const StepPlan& plan) override {
    plans.push_back(plan);
    absl::StatusOr<StepResult> result = FakeExecutor::execute(plan);
    for (size_t i = 0; result.ok() && meter_of && i < plan.slices.size(); ++i) {
      result->slices[i].meter = meter_of(plan.slices[i]);
    }
    if (result.ok() && spoil) spoil(plan, *result);
    return result;
  }
  std::vector<kv::HeadMeter> read_head_meters() override {
    ++num_reads;
    return heads;
  }
  const PoolInfo& pool() const override { return pool_; }
  const ModelInfo& model() const override { return model_; }

  std::function<kv::SequenceMeter(const SequenceSlice&)> meter_of;
  std::function<void(const StepPlan&, StepResult&)> spoil;
  std::vector<kv::HeadMeter> heads;
  std::vector<StepPlan> plans;
  int num_reads = 0;
  GateStats gate;
  GateStats read_gate() const override { return gate; }

 private:
  PoolInfo pool_;
  ModelInfo model_;
};

class CertificateTest : public EngineTest {
 protected:
  void start_metered(const std::string& pool = "certified", bool has_backing = false) {
    auto executor = std::make_unique<MeteredExecutor>(model_, pool, has_backing);
    executor_ = metered_ = executor.get();
    EngineOptions options;
    options.now = [this] { return now_; };
    options.start_thread = false;
    engine_ = EngineImpl::create(config_, std::move(executor), options).value();
  }

  static Request asking(int32_t num_prompt, int32_t max_tokens) {
    Request asked = request(numbers(num_prompt), max_tokens);
    asked.certificate.report = true;
    return asked;
  }

  std::string refusal(std::optional<double> tau, std::optional<double> delta,
                      CertificateOptions::Policy policy = CertificateOptions::Policy::kServer) {
    Request asked = asking(6, 2);
    asked.certificate = {.report = true, .tau = tau, .delta = delta, .policy = policy};
    const auto stream = engine_->submit(asked);
    EXPECT_EQ(stream.ok() || absl::IsInvalidArgument(stream.status()), true);
    return stream.ok() ? "" : std::string(stream.status().message());
  }

  MeteredExecutor* metered_ = nullptr;
};

// Six certified cells for each decode step; the raw value grows to its largest at `peak`.
kv::SequenceMeter decode_cells(const SequenceSlice& slice, int32_t peak) {
  kv::SequenceMeter meter;
  if (slice.first_position < slice.num_prompt_tokens) {
    meter.cells[kPrefill].metered = meter.cells[kPrefill].risk_ranked = 1;
    meter.worst[kPrefill] = {0.9f, 0.9f, 1, 1, slice.first_position};
    return meter;
  }
  meter.cells[kDecode].metered = meter.cells[kDecode].certified = 6;
  const float tv = slice.first_position == peak ? 0.25f : 0.125f;
  meter.worst[kDecode] = {tv, tv, 1, 2, slice.first_position};
  meter.worst_value[kDecode] = {0.0625f, 0.0625f, 0, 1, slice.first_position};
  return meter;
}

TEST_F(CertificateTest, AddsUpTheStepsOfASequence) {
  start_metered();
  metered_->meter_of = [](const SequenceSlice& slice) { return decode_cells(slice, 8); };
  auto stream = submit(asking(6, 5));
  finish_all();
  const Outcome got = outcome(*stream);
  for (size_t i = 0; i + 1 < got.events.size(); ++i) EXPECT_FALSE(got.events[i].certificate);
  ASSERT_TRUE(got.last && got.last->certificate);
  const CertificateReport& report = *got.last->certificate;
  EXPECT_EQ(report.decode.metered, 4 * 6);  // the first token comes from the prefill
  EXPECT_EQ(report.decode.certified, 4 * 6);
  EXPECT_EQ(report.prefill.metered, 1);
  EXPECT_EQ(report.prefill.risk_ranked, 1);
  EXPECT_TRUE(report.certified) << "prefill cells are reported apart";
  EXPECT_EQ(report.worst.bound, 0.25);
  EXPECT_EQ(report.worst.layer, 1);
  EXPECT_EQ(report.worst.head, 2);
  EXPECT_EQ(report.worst.step, 3);  // the query at 8 decides token 9, the fourth of those behind 6 prompt tokens
  EXPECT_EQ(report.worst_value.bound, 0.0625);
  EXPECT_EQ(report.worst_value.step, 1);
  EXPECT_EQ(report.pool, "certified");
  EXPECT_EQ(report.radius, "witness");
  EXPECT_EQ(report.guarantee, "deterministic");
  EXPECT_EQ(report.policy, "repair");
  EXPECT_EQ(report.tau, 0.2);
  EXPECT_EQ(report.prefill_stride, 64);
  EXPECT_EQ(report.backing, "none");
}

TEST_F(CertificateTest, NobodyAskedNobodyIsTold) {
  start_metered();
  auto stream = submit(request(numbers(6), 3));
  finish_all();
  EXPECT_FALSE(outcome(*stream).last->certificate);
}

TEST_F(CertificateTest, OneCellOverTauOrOnDitherAloneIsNotCertified) {
  for (const bool conditional : {false, true}) {
    config_.kv_radius = conditional ? "both" : "witness";
    start_metered();
    metered_->meter_of = [conditional](const SequenceSlice& slice) {
      kv::SequenceMeter meter = decode_cells(slice, -1);
      kv::CellCounts& cells = meter.cells[kDecode];
      if (slice.first_position != 7) return meter;
      --cells.certified;
      ++(conditional ? cells.conditional : cells.risk_ranked);
      return meter;
    };
    auto stream = submit(asking(6, 5));
    finish_all();
    const Outcome got = outcome(*stream);
    EXPECT_FALSE(got.last->certificate->certified);
    EXPECT_EQ(got.last->certificate->guarantee, conditional ? "conditional" : "deterministic");
    EXPECT_EQ(got.last->certificate->decode.certified, 4 * 6 - 1);
  }
}

TEST_F(CertificateTest, WorstIsByRawWhereTheBoundIsOne) {
  start_metered();
  metered_->meter_of = [](const SequenceSlice& slice) {
    kv::SequenceMeter meter = decode_cells(slice, -1);
    meter.worst[kDecode].bound = 1;
    meter.worst[kDecode].raw = slice.first_position == 7 ? INFINITY : static_cast<float>(slice.first_position);
    return meter;
  };
  auto stream = submit(asking(6, 5));
  finish_all();
  const CertificateReport report = *outcome(*stream).last->certificate;
  EXPECT_EQ(report.worst.step, 2);
  EXPECT_TRUE(std::isinf(report.worst.raw));
}

TEST_F(CertificateTest, GateOffGuaranteesNothing) {
  config_.kv_gate = "off";
  start_metered();
  auto stream = submit(asking(6, 3));
  finish_all();
  const CertificateReport report = *outcome(*stream).last->certificate;
  EXPECT_EQ(report.guarantee, "none");
  EXPECT_FALSE(report.certified);
}

TEST_F(CertificateTest, ExactPoolsCountTheirDecodeCells) {
  start_metered("exact");
  Request asked = asking(6, 4);
  asked.certificate.policy = CertificateOptions::Policy::kRepair;
  auto stream = submit(asked);
  finish_all();
  const CertificateReport report = *outcome(*stream).last->certificate;
  EXPECT_TRUE(report.certified);
  EXPECT_EQ(report.guarantee, "deterministic");
  EXPECT_EQ(report.decode.exact, 3 * 2 * 3);
  EXPECT_EQ(report.decode.metered, 0);
  EXPECT_EQ(report.worst.layer, -1);
  EXPECT_EQ(report.radius, "none");
  EXPECT_EQ(report.policy, "repair");
  EXPECT_EQ(metered_->num_reads, 0);
}

TEST_F(CertificateTest, RequestsMayOnlyTighten) {
  start_metered();
  using Policy = CertificateOptions::Policy;
  EXPECT_EQ(refusal(0.1, 0.001, Policy::kObserve), "");
  EXPECT_EQ(refusal(0.2, 0.01), "");
  EXPECT_THAT(refusal(0.21, {}), HasSubstr("certificate.tau must be above 0 and at most the server's own 0.2"));
  EXPECT_THAT(refusal(0.0, {}), HasSubstr("certificate.tau"));
  EXPECT_THAT(refusal(NAN, {}), HasSubstr("certificate.tau"));
  EXPECT_THAT(refusal({}, 0.02), HasSubstr("certificate.delta"));
  EXPECT_THAT(refusal({}, -1.0), HasSubstr("certificate.delta"));
  EXPECT_THAT(refusal({}, {}, Policy::kRepair), HasSubstr("certificate.policy \"repair\" needs exact rows"));
  EXPECT_THAT(refusal({}, {}, Policy::kExact), HasSubstr("certificate.policy \"exact\" needs exact rows"));
}

TEST_F(CertificateTest, APolicyReachesTheSlicesOfItsRequest) {
  config_.kv_gate = "repair";
  start_metered("certified", /*has_backing=*/true);
  using Policy = CertificateOptions::Policy;
  for (const auto& [asked, expected, name] :
       {std::tuple{Policy::kServer, kv::GatePolicy::kRepair, "repair"},
        {Policy::kObserve, kv::GatePolicy::kObserve, "observe"},
        {Policy::kExact, kv::GatePolicy::kExact, "exact"}}) {
    Request request = asking(6, 3);
    request.certificate.policy = asked;
    auto stream = submit(request);
    finish_all();
    EXPECT_EQ(outcome(*stream).last->certificate->policy, name);
    EXPECT_EQ(metered_->plans.back().slices[0].meter.policy, expected);
  }
}

TEST_F(CertificateTest, WhatTheGateDidAddsUpAndBackingIsCompleteOrNot) {
  start_metered("certified", /*has_backing=*/true);
  bool backed = true;
  metered_->meter_of = [](const SequenceSlice& slice) {
    kv::SequenceMeter meter = decode_cells(slice, 8);
    meter.gate = {.refined = 1, .paged = 2, .whole_head = 3, .whole_layer = 4, .pages_in = 5, .bytes_in = 6, .repair_hits = 7,
                  .checksum_failures = 8, .pages_not_backed = 9};
    return meter;
  };
  metered_->spoil = [&](const StepPlan& plan, StepResult& result) {
    for (size_t i = 0; i < plan.slices.size(); ++i) result.slices[i].backed = backed || plan.slices[i].first_position != 8;
  };
  auto complete = submit(asking(6, 3));
  finish_all();
  const CertificateReport report = *outcome(*complete).last->certificate;
  EXPECT_EQ(report.backing, "complete");
  EXPECT_EQ(report.gate.refined, 3);
  EXPECT_EQ(report.gate.paged, 6);
  EXPECT_EQ(report.gate.whole_head, 9);
  EXPECT_EQ(report.gate.whole_layer, 12);
  EXPECT_EQ(report.gate.pages_in, 15);
  EXPECT_EQ(report.gate.bytes_in, 18);
  EXPECT_EQ(report.gate.repair_cache_hits, 21);
  EXPECT_EQ(report.gate.pages_not_backed, 27);
  backed = false;
  auto partial = submit(asking(6, 5));
  finish_all();
  EXPECT_EQ(outcome(*partial).last->certificate->backing, "partial") << "one step was not";
}

TEST_F(CertificateTest, TotalsOfTheGateAreTheExecutors) {
  start_metered("certified", /*has_backing=*/true);
  metered_->gate.pages_in = 12;
  metered_->gate.audit_deterministic.cells = 5;
  auto stream = submit(asking(6, 2));
  finish_all();
  EXPECT_EQ(engine_->gate().pages_in, 12);
  EXPECT_EQ(engine_->gate().audit_deterministic.cells, 5);
}

TEST_F(CertificateTest, ThresholdsOfARequestReachItsSlices) {
  start_metered();
  Request asked = asking(6, 3);
  asked.certificate.tau = 0.1;
  auto stream = submit(asked);
  finish_all();
  ASSERT_FALSE(metered_->plans.empty());
  for (const StepPlan& plan : metered_->plans) {
    EXPECT_LE(static_cast<double>(plan.slices[0].meter.tau), 0.1) << "a float threshold is never laxer";
    EXPECT_FLOAT_EQ(plan.slices[0].meter.tau, 0.1f);
    EXPECT_FLOAT_EQ(plan.slices[0].meter.tau_v, 0.05f);
    EXPECT_EQ(plan.slices[0].meter.metered_stride, 64);
  }
  // Decode at position 7 with 3 tokens, 6 heads: 2 ln(2 x 7 / (0.8 x 0.01 / (6 x 3)))
  EXPECT_FLOAT_EQ(metered_->plans[2].slices[0].meter.kappa,
                  static_cast<float>(std::sqrt(2 * std::log(2.0 * 7 * 6 * 3 / (0.8 * 0.01)))));
}

TEST(CertificateBudget, SharesOfARequestAddUpToItsDelta) {
  CertificateRules rules;
  rules.has_meter = true;
  rules.cells_per_query = 48;
  Request request;
  request.prompt.assign(100, 1);
  request.sampling.max_tokens = 30;
  request.num_sequences = 4;
  const auto spent = [&](bool decode, int32_t preemptions) {
    return local_delta(0.01, request, rules, {.first_position = 50, .decode = decode, .preemptions = preemptions});
  };
  double first = 30 * spent(true, 0) + 100 * spent(false, 0), again = 0;
  for (int32_t preemptions = 1; preemptions < 60; ++preemptions) {
    again += 100 * spent(false, preemptions) + 30 * spent(true, preemptions);
  }
  const double cells = 4 * 48;
  EXPECT_LE((first + again) * cells, 0.01 * (1 + 1e-12));
  EXPECT_GE((first + again) * cells, 0.01 * 0.999999);
  EXPECT_GT(spent(true, 5000), 0.0);
  EXPECT_NEAR(30 * spent(true, 0) * cells, 0.008, 1e-12) << "n sequences share one delta";
}

TEST_F(CertificateTest, StepsRunAgainCountAgain) {
  model_.num_pages = 6;  // two sequences of 6 + 8 tokens need 8
  model_.block_size = 4;
  config_.enable_prefix_caching = false;
  start_metered();
  metered_->meter_of = [](const SequenceSlice& slice) {
    kv::SequenceMeter meter;
    const bool decode = slice.num_tokens == 1 && slice.first_position >= slice.num_prompt_tokens;
    kv::CellCounts& cells = meter.cells[decode ? kDecode : kPrefill];
    cells.metered = cells.certified = static_cast<uint64_t>(slice.num_tokens);
    return meter;
  };
  auto first = submit(asking(6, 8)), second = submit(asking(6, 8));
  finish_all();
  const Outcome one = outcome(*first), two = outcome(*second);
  ASSERT_EQ(one.last->usage.preemptions + two.last->usage.preemptions, 1);
  const CertificateReport& again = *(one.last->usage.preemptions ? one : two).last->certificate;
  EXPECT_GT(again.decode.metered + again.prefill.metered, 6 + 7);
  // Whoever leaves is named once, in the plan after: the preempted one, then (when another plan follows) those that
  // ended.
  std::vector<int64_t> named;
  for (const StepPlan& plan : metered_->plans)
    named.insert(named.end(), plan.ended_sequences.begin(), plan.ended_sequences.end());
  EXPECT_THAT(named, testing::ElementsAre(1, 0));
}

TEST_F(CertificateTest, OneFailedSliceEndsItsSequenceAlone) {
  start_metered();
  metered_->spoil = [](const StepPlan& plan, StepResult& result) {
    for (size_t i = 0; i < plan.slices.size(); ++i) {
      if (plan.slices[i].sequence_id == 0 && plan.slices[i].first_position == 7) {
        result.slices[i] = SliceResult{};
        result.slices[i].status = absl::InternalError("the logits are not finite");
      }
    }
  };
  auto failing = submit(asking(6, 8)), other = submit(asking(6, 8));
  finish_all();
  const Outcome failed = outcome(*failing), fine = outcome(*other);
  EXPECT_EQ(failed.last->finish, FinishReason::kError);
  EXPECT_THAT(std::string(failed.last->status.message()), HasSubstr("not finite"));
  EXPECT_EQ(fine.tokens.size(), 8u);
  EXPECT_TRUE(engine_->stats().healthy);
}

kv::HeadMeter head_meter(uint64_t metered, float recent_worst, float worst) {
  kv::HeadMeter head;
  head.metered[kDecode] = metered;
  head.worst = worst;
  head.recent_worst = recent_worst;
  head.tv_sum[kDecode] = 0.5f;
  head.tv_buckets[kDecode][3] = 2;
  head.value_buckets[kPrefill][0] = 1;
  return head;
}

TEST_F(CertificateTest, TelemetryOfTheLastMinute) {
  start_metered();
  metered_->heads.assign(6, head_meter(10, 0.5f, 0.5f));
  auto first = submit(request(numbers(6), 3));
  finish_all();
  const int reads = metered_->num_reads;
  EXPECT_EQ(reads, 3) << "a second passes with each step of this clock";
  MeterSnapshot snapshot = engine_->meters();
  ASSERT_EQ(snapshot.heads.size(), 6u);
  EXPECT_EQ(snapshot.num_layers, 2);
  EXPECT_EQ(snapshot.heads[5].cells[kDecode].metered, 10) << "since start, not added up";
  EXPECT_EQ(snapshot.heads[5].recent_worst, 0.5);
  EXPECT_DOUBLE_EQ(snapshot.heads[5].cells[kDecode].tv_sum, 0.5 * reads);
  EXPECT_EQ(snapshot.tv[kDecode].counts[3], 2 * 6 * reads);
  EXPECT_DOUBLE_EQ(snapshot.tv[kDecode].sum, 0.5 * 6 * reads);
  EXPECT_EQ(snapshot.value[kPrefill].counts[0], 6 * reads);
  EXPECT_EQ(snapshot.bucket_edges.size() + 1, snapshot.tv[kDecode].counts.size());

  now_ += std::chrono::seconds(45);
  metered_->heads.assign(6, head_meter(20, 0.125f, 0.5f));
  auto second = submit(request(numbers(6), 1));
  finish_all();
  EXPECT_EQ(engine_->meters().heads[0].recent_worst, 0.5) << "still within a minute";
  now_ += std::chrono::seconds(20);
  EXPECT_EQ(engine_->meters().heads[0].recent_worst, 0.125);
  EXPECT_EQ(engine_->meters().heads[0].worst, 0.5);
  now_ += std::chrono::seconds(100);
  EXPECT_EQ(engine_->meters().heads[0].recent_worst, 0) << "an idle engine has no recent worst";
}

TEST_F(CertificateTest, TelemetryOffReadsNothing) {
  config_.kv_telemetry = "off";
  start_metered();
  metered_->heads.assign(6, head_meter(10, 0.5f, 0.5f));
  auto stream = submit(request(numbers(6), 3));
  finish_all();
  EXPECT_EQ(metered_->num_reads, 0);
  EXPECT_TRUE(engine_->meters().heads.empty());
}

TEST_F(CertificateTest, RefusesSettingsThatMakeNoSense) {
  const auto refused = [this](const std::function<void(EngineConfig&)>& spoil) {
    EngineConfig config = config_;
    spoil(config);
    const auto engine = EngineImpl::create(config, std::make_unique<FakeExecutor>(model_));
    EXPECT_TRUE(absl::IsInvalidArgument(engine.status()));
    return std::string(engine.status().message());
  };
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_gate = "repair", c.kv_backing = "none"; }),
              HasSubstr("kv_gate repair reads exact rows, and kv_backing none keeps none"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_exact_layers = {1}, c.kv_backing = "none", c.kv_gate = "observe"; }),
              HasSubstr("kv_exact_layers reads exact rows"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_audit_rate = NAN; }), HasSubstr("kv_audit_rate must be from 0 to 1"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_tau = 0; }), HasSubstr("kv_tau must be above 0"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_tau_v = NAN; }), HasSubstr("kv_tau_v"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_delta = 1.5; }), HasSubstr("kv_delta must be above 0 and at most 1"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_radius = "hope"; }),
              HasSubstr("kv_radius must be one of witness, dither, both"));
  EXPECT_THAT(refused([](EngineConfig& c) { c.kv_bound = "g"; }), HasSubstr("kv_bound"));
}

}  // namespace
}  // namespace assay
