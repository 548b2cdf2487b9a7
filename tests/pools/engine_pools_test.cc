// The whole engine on every pool: what a request gets does not depend on its company, prefix hits serve what was
// stored, preemption loses nothing, the meter counts what it should.
#include <set>

#include "engine/api/engine.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

struct EnginePool {
  std::string pool, radius = "witness", stream = "periodic";
  int32_t outlier_pairs = 0;

  std::string name() const {
    std::string name =
        pool + "_" + radius + (stream == "per-slot" ? "_per_slot" : "") + "_m" + std::to_string(outlier_pairs);
    for (char& c : name) {
      if (c == ':' || c == '-') c = '_';
    }
    return name;
  }
};

std::vector<int32_t> prompt_of(int32_t length, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((i * i * 31 + i * seed + 7) % 500);
  return tokens;
}

// What a request got.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  SequenceUsage usage;
  CertificateReport certificate;
  bool operator==(const Outcome& other) const { return tokens == other.tokens && logprobs == other.logprobs; }
};

class EnginePools : public testing::TestWithParam<EnginePool> {
 protected:
  std::unique_ptr<Engine> start(bool prefix_caching, int32_t pages = 0) {
    EngineConfig config;
    config.model_dir = std::string(ASSAY_TEST_DATA) + "/models/llama_hd128";
    config.threads = 2;
    config.max_model_len = 512;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 2048;
    config.block_size = 32;
    config.enable_prefix_caching = prefix_caching;
    config.kv_pool = GetParam().pool;
    config.kv_radius = GetParam().radius;
    config.kv_dither_stream = GetParam().stream;
    config.kv_outlier_pairs = GetParam().outlier_pairs;
    config.kv_seed = 7;
    config.seed = 1;
    config.kv_prefill_meter = "all";
    config.kv_gate = "observe";  // what the pool alone serves; the gate has tests of its own
    config.kv_backing = "none";
    if (pages > 0) config.kv_cache_memory_bytes = pages * page_bytes_;
    auto engine = Engine::create(config);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return nullptr;
    page_bytes_ = (*engine)->pool().bytes_per_page + (*engine)->pool().side_bytes_per_page;
    return *std::move(engine);
  }

  static Request request(int32_t length, int32_t seed, int32_t max_tokens, const std::string& salt = "") {
    Request r;
    r.prompt = prompt_of(length, seed);
    r.sampling.temperature = 0.7f;
    r.sampling.seed = 11;
    r.sampling.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    r.sampling.logprobs = 2;
    r.cache_salt = salt;
    r.certificate.report = true;
    return r;
  }

  static Outcome collect(Stream& stream) {
    Outcome outcome;
    for (;;) {
      for (const Event& event : stream.wait(std::chrono::milliseconds(60'000))) {
        if (event.token) outcome.tokens.push_back(*event.token);
        if (event.logprobs) outcome.logprobs.push_back(event.logprobs->logprob);
        if (!event.finish) continue;
        EXPECT_EQ(*event.finish, FinishReason::kLength) << event.status.message();
        outcome.usage = event.usage;
        if (event.certificate) outcome.certificate = *event.certificate;
        return outcome;
      }
    }
  }

  static std::vector<Outcome> run(Engine& engine, std::vector<Request> requests) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (Request& r : requests) {
      auto stream = engine.submit(std::move(r));
      EXPECT_TRUE(stream.ok()) << stream.status().message();
      streams.push_back(*std::move(stream));
    }
    std::vector<Outcome> outcomes;
    for (const auto& stream : streams) outcomes.push_back(collect(*stream));
    return outcomes;
  }

  bool has_meter() const { return GetParam().pool != "exact"; }

 private:
  int64_t page_bytes_ = 0;
};

// Prompts are computed in one chunk each, so chunk boundaries are the same alone and in company.
TEST_P(EnginePools, AloneAsInABatch) {
  const auto engine = start(false);
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) requests.push_back(request(20 + 33 * i, i, 24));
  std::vector<Outcome> alone;
  for (const Request& r : requests) alone.push_back(run(*engine, {r}).at(0));
  EXPECT_EQ(run(*engine, requests), alone);
}

TEST_P(EnginePools, PrefixHitsServeWhatWasStored) {
  const auto engine = start(true);
  ASSERT_NE(engine, nullptr);
  const Outcome first = run(*engine, {request(150, 3, 16)}).at(0), second = run(*engine, {request(150, 3, 16)}).at(0);
  EXPECT_EQ(first.usage.cached_tokens, 0);
  EXPECT_EQ(second.usage.cached_tokens, 128);
  // Another salt shares nothing and computes the prompt as the first one did.
  const Outcome salted = run(*engine, {request(150, 3, 16, "salt")}).at(0);
  EXPECT_EQ(salted.usage.cached_tokens, 0);
  EXPECT_EQ(salted, first);
  // Reuse again and again: the same pages, the same answer.
  std::vector<Request> many;
  for (int32_t i = 0; i < 20; ++i) many.push_back(request(150, 3, 16));
  for (const Outcome& outcome : run(*engine, many)) {
    EXPECT_EQ(outcome, second);
    EXPECT_EQ(outcome.usage.cached_tokens, 128);
  }
  if (GetParam().pool == "exact") {
    EXPECT_EQ(second, first);
  }
}

TEST_P(EnginePools, PreemptionLosesNothing) {
  constexpr int32_t kPages = 22;  // of 32 tokens: two of the requests below and a bit
  auto engine = start(false);     // learns the size of a page
  engine = start(false, kPages);
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) requests.push_back(request(60 + 10 * i, i, 150));
  std::vector<Outcome> alone;
  for (const Request& r : requests) alone.push_back(run(*engine, {r}).at(0));
  const std::vector<Outcome> together = run(*engine, requests);
  int32_t preempted = 0;
  for (size_t i = 0; i < together.size(); ++i) {
    ASSERT_EQ(together[i].tokens.size(), 150u);
    ASSERT_EQ(together[i].logprobs.size(), 150u);
    preempted += together[i].usage.preemptions > 0;
    // What is computed again reads exact rows where it read stored ones before: the same on the exact pool alone.
    if (together[i].usage.preemptions == 0 || !has_meter()) {
      EXPECT_EQ(together[i], alone[i]) << i;
    }
  }
  EXPECT_GT(preempted, 0);
  EXPECT_GT(engine->stats().preemptions_total, 0);
}

TEST_P(EnginePools, EveryDecodeCellIsMeteredAndLabelled) {
  const auto engine = start(false);
  ASSERT_NE(engine, nullptr);
  const Outcome outcome = run(*engine, {request(100, 5, 40)}).at(0);
  const CertificateReport& report = outcome.certificate;
  const CertificateCells& cells = report.decode;
  const int64_t heads = engine->model().num_layers * engine->model().num_heads;
  if (!has_meter()) {
    EXPECT_EQ(cells.exact, 39 * heads);  // nothing to meter
    return;
  }
  EXPECT_EQ(cells.metered, 39 * heads);
  EXPECT_EQ(cells.certified + cells.conditional + cells.risk_ranked + cells.exact, cells.metered);
  if (GetParam().radius == "witness") {
    EXPECT_EQ(cells.conditional, 0);
  }
  if (GetParam().pool == "witcert" || GetParam().radius == "dither") {
    EXPECT_EQ(cells.certified, 0);
    EXPECT_GT(cells.conditional, 0);
    EXPECT_FALSE(report.certified);
    EXPECT_EQ(report.guarantee, "conditional");
  }
  if (GetParam().pool == "certified" && GetParam().radius != "dither") {
    EXPECT_GT(cells.certified, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EnginePools,
                         testing::Values(EnginePool{"exact"}, EnginePool{"certified"}, EnginePool{"certified", "both"},
                                         EnginePool{"certified", "dither", "per-slot"}, EnginePool{"witcert", "dither"},
                                         EnginePool{"witcert", "dither", "per-slot", 4},
                                         EnginePool{"witcert", "dither", "periodic", 16},
                                         EnginePool{"observed:rtn-int8"}, EnginePool{"observed:rtn-int8-tensor"},
                                         EnginePool{"observed:fp8-e4m3"}, EnginePool{"observed:rtn-int4"},
                                         EnginePool{"observed:kivi-2"}, EnginePool{"observed:kvquant-4"},
                                         EnginePool{"observed:stochastic-int8"}, EnginePool{"observed:identity"}),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace assay
