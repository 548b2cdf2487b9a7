// The closed loop in a whole engine, under everything that moves pages: shared prefixes, preemption, chunks, eviction,
// cancellation. With an audit of every step, a backing row that is not the row that was written shows as a failed
// checksum or a violation.
#include <chrono>
#include <set>

#include "engine/api/engine.h"
#include "gmock/gmock.h"
#include "tests/golden/sequence_driver.h"

namespace assay {
namespace {

using std::chrono::seconds;

EngineConfig gate_config(const std::string& pool, int32_t num_pages) {
  EngineConfig config = test_config(std::string(ASSAY_TEST_DATA) + "/models/qwen2_hd64_group7");
  config.kv_pool = pool;
  config.block_size = 32;
  config.max_model_len = 640;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 96;
  config.kv_gate = "repair";
  config.kv_audit_rate = 1.0;
  config.kv_seed = 5;
  config.seed = 1;
  const auto measured = must_make(config);
  config.kv_cache_memory_bytes = num_pages * (measured->pool().bytes_per_page + measured->pool().side_bytes_per_page);
  return config;
}

std::vector<int32_t> tokens_of(int32_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * i * 17 + i * seed + 3) % 400);
  return tokens;
}

// Four groups of three requests; those of a group share 200 tokens.
Request request_of(int32_t index, double tau) {
  Request request;
  request.prompt = tokens_of(200, 7 + index % 4);
  const std::vector<int32_t> own = tokens_of(60 + 9 * index, 100 + index);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.sampling.temperature = index % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.max_tokens = 90;
  request.sampling.ignore_eos = true;
  request.certificate.report = true;
  request.certificate.tau = tau;
  return request;
}

struct Ending {
  std::vector<int32_t> tokens;
  Event last;
};

Ending wait_for(Stream& stream) {
  Ending ending;
  for (int i = 0; i < 2000; ++i) {
    for (Event& event : stream.wait(seconds(1))) {
      if (event.token) ending.tokens.push_back(*event.token);
      if (event.finish) {
        ending.last = std::move(event);
        return ending;
      }
    }
  }
  ADD_FAILURE() << "the request never ended";
  return ending;
}

struct GateCase {
  const char* pool;
  double tau;  // some cells are over it and can be paged, others need their whole head
};

class GateEngine : public testing::TestWithParam<GateCase> {};

TEST_P(GateEngine, EveryRowThatIsReadIsTheRowThatWasWritten) {
  EngineConfig config = gate_config(GetParam().pool, 30);  // not even three requests fit to their ends
  config.kv_tau = GetParam().tau;
  config.kv_repair_cache_memory_bytes = int64_t{1} << 17;
  const auto engine = Engine::create(config).value();
  ASSERT_TRUE(engine->pool().has_backing);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int32_t i = 0; i < 12; ++i) streams.push_back(engine->submit(request_of(i, GetParam().tau)).value());
  streams[5]->cancel();
  int64_t paged = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    const Ending ending = wait_for(*streams[i]);
    ASSERT_TRUE(ending.last.certificate) << i;
    const CertificateReport& report = *ending.last.certificate;
    paged += report.gate.pages_in;
    EXPECT_EQ(report.decode.risk_ranked, 0) << i;
    EXPECT_EQ(report.backing, "complete");
    EXPECT_EQ(report.policy, "repair");
    EXPECT_TRUE(i == 5 || ending.tokens.size() == 90u) << i;
    // Each generated token but the first is decided by one decode row, whatever was preempted in between.
    const int64_t cells = int64_t{engine->model().num_layers} * engine->model().num_heads;
    const auto decided = std::max<int64_t>(static_cast<int64_t>(ending.tokens.size()) - 1, 0);
    EXPECT_TRUE(i == 5 || report.decode.metered == decided * cells) << i << " " << report.decode.metered;
  }
  const GateStats gate = engine->gate();
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.preemptions_total, 0);
  EXPECT_GT(stats.prefix_cache_hits_total, 0);
  EXPECT_GT(paged, 0);
  EXPECT_GT(gate.repair_cache_hits, 0);
  EXPECT_GT(gate.repair_cache_evictions, 0);
  EXPECT_EQ(gate.backing_checksum_failures, 0);
  EXPECT_EQ(gate.pages_not_backed, 0);
  EXPECT_EQ(gate.backing_skipped_pages, 0);
  const AuditCounts& audit = engine->config().kv_radius == "dither" ? gate.audit_conditional : gate.audit_deterministic;
  EXPECT_GT(audit.cells, 1000);
  EXPECT_EQ(gate.audit_deterministic.violations + gate.audit_conditional.violations, 0);
}

INSTANTIATE_TEST_SUITE_P(Pools, GateEngine,
                         testing::Values(GateCase{"certified", 0.03}, GateCase{"witcert", 0.02},
                                         GateCase{"observed:rtn-int4", 0.7}, GateCase{"observed:kivi-2", 0.9}),
                         [](const auto& info) {
                           std::string name = info.param.pool;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(GateBacking, TooSmallForTheLoadNeverHangsAndIsReported) {
  EngineConfig config = gate_config("certified", 60);
  const auto measured = must_make(config);
  const int64_t heads = int64_t{measured->model().num_layers} * measured->model().num_kv_heads;
  config.kv_backing_memory_bytes = 6 * heads * 32 * (2 * 64 * 4 + 8);  // six pages of float rows
  config.kv_cache_dtype = "float32";
  const auto engine = Engine::create(config).value();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int32_t i = 0; i < 8; ++i) streams.push_back(engine->submit(request_of(i, 1e-6)).value());
  std::set<std::string> backing;
  for (const auto& stream : streams) {
    const CertificateReport report = *wait_for(*stream).last.certificate;
    backing.insert(report.backing);
    if (report.backing == "complete") continue;
    EXPECT_GT(report.decode.risk_ranked, 0);
    EXPECT_FALSE(report.certified);
    EXPECT_GT(report.gate.pages_not_backed, 0);
  }
  EXPECT_TRUE(backing.contains("partial"));
  EXPECT_GT(engine->gate().backing_skipped_pages, 0);
  EXPECT_EQ(engine->gate().audit_deterministic.violations, 0);
}

TEST(GateBacking, APreemptedSequenceComesBackFromItsRows) {
  for (const char* pool : {"certified", "witcert", "observed:kivi-2"}) {
    EngineConfig config = gate_config(pool, 21);  // two requests start, and do not fit to their ends
    config.kv_gate = "observe";
    config.enable_prefix_caching = false;
    config.kv_backing_memory_bytes = int64_t{64} << 20;  // more than the pages need
    const auto engine = Engine::create(config).value();
    std::vector<std::unique_ptr<Stream>> streams;
    for (int32_t r = 0; r < 4; ++r) streams.push_back(engine->submit(request_of(r, 0.2)).value());
    for (const auto& stream : streams) EXPECT_EQ(wait_for(*stream).tokens.size(), 90u);
    const EngineStats stats = engine->stats();
    EXPECT_GT(stats.preemptions_total, 0) << pool;
    EXPECT_GT(stats.restored_tokens_total, 200) << pool;
    EXPECT_LT(stats.prefill_tokens_computed_total, stats.prompt_tokens_total + 32 * stats.preemptions_total)
        << "no more than what is behind the last whole page is computed again";
    EXPECT_EQ(engine->gate().audit_deterministic.violations + engine->gate().audit_conditional.violations, 0);
    EXPECT_EQ(engine->gate().backing_checksum_failures, 0);
  }
}

TEST(GatePolicy, ExactGivesTheTokensOfTheExactPool) {
  EngineConfig config = gate_config("certified", 60);
  config.kv_cache_dtype = "float32";
  const auto certified = Engine::create(config).value();
  config.kv_pool = "exact";
  config.kv_cache_memory_bytes = int64_t{1} << 26;
  const auto exact = Engine::create(config).value();
  for (int32_t i = 0; i < 4; i += 2) {
    Request request = request_of(i, 0.1);
    request.certificate.policy = CertificateOptions::Policy::kExact;
    const Ending got = wait_for(*certified->submit(request).value());
    const Ending want = wait_for(*exact->submit(request).value());
    EXPECT_EQ(got.tokens, want.tokens);
    ASSERT_TRUE(got.last.certificate);
    EXPECT_EQ(got.last.certificate->decode.exact, got.last.certificate->decode.metered);
    EXPECT_TRUE(got.last.certificate->certified);
    EXPECT_EQ(got.last.certificate->policy, "exact");
  }
}

TEST(GatePolicy, ExactLayersReadNothingCompressed) {
  EngineConfig config = gate_config("observed:rtn-int4", 60);
  config.kv_gate = "observe";
  config.kv_exact_layers = {0};
  const auto engine = Engine::create(config).value();
  const CertificateReport report = *wait_for(*engine->submit(request_of(0, 0.1)).value()).last.certificate;
  const int64_t layers = engine->model().num_layers;
  EXPECT_EQ(report.decode.exact, report.decode.metered / layers);
  config.kv_exact_layers = {99};
  EXPECT_THAT(std::string(Engine::create(config).status().message()), testing::HasSubstr("kv_exact_layers names layer 99"));
}

}  // namespace
}  // namespace assay
