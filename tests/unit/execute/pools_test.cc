// The certified pool at the executor's seam: bytes as measured, meters of decode and prefill, shared prefixes, the same
// bits for the same chunk boundaries; and its meter on the bundled model's own activations.
#include <cstring>

#include "engine/execute/calibration.h"
#include "engine/execute/kv_pool.h"
#include "engine/execute/step_batch.h"
#include "engine/execute/step_meter.h"
#include "engine/weights/checkpoint.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/golden/sequence_driver.h"
#include "tests/kernels/pool_truth.h"

namespace assay {
namespace {

std::string model_dir(const std::string& name) {
  return std::string(ASSAY_TEST_DATA) + "/models/" + name;
}

EngineConfig pool_config(const std::string& model, const std::string& pool, int32_t threads = 2) {
  EngineConfig config = test_config(model_dir(model));
  config.kv_pool = pool;
  config.threads = threads;
  config.kv_cache_memory_bytes = int64_t{64} << 20;
  return config;
}

std::vector<int32_t> prompt_of(int32_t length, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((i * i * 31 + i * seed + 7) % 500);
  return tokens;
}

TEST(CertifiedPool, BytesAreMeasured) {
  for (const auto& [model, bytes] : {std::pair{"tiny", 264}, {"llama_hd128", 264}, {"qwen2_hd64_group7", 136}}) {
    const auto certified = must_make(pool_config(model, "certified")), exact = must_make(pool_config(model, "exact"));
    ASSERT_TRUE(certified && exact);
    const PoolInfo& pool = certified->pool();
    const ModelInfo& info = certified->model();
    EXPECT_EQ(pool.bytes_per_token_head, bytes);
    EXPECT_EQ(pool.bytes_per_page, int64_t{bytes} * 16 * info.num_layers * info.num_kv_heads);
    EXPECT_EQ(pool.side_bytes_per_page, int64_t{2} * info.num_layers * info.num_kv_heads);
    const double ratio = static_cast<double>(pool.num_pages) / static_cast<double>(exact->pool().num_pages);
    const double computed = 4.0 * info.head_dim / (bytes + 2.0 / 16);
    EXPECT_NEAR(ratio, computed, 0.002 * computed);
  }
}

struct PoolBytes {
  const char* pool;
  int32_t outlier_pairs;
  int64_t bytes;   // of 32 tokens and one KV head, head_dim 128, bf16 rows: K, V, and what stands beside them
  double capacity;  // pages against the exact pool, as published: to 1 %
};

// Counted by hand from what each scheme stores, against what was allocated.
TEST(Pools, BytesAreMeasured) {
  const int64_t witness = 32 * (16 * 2 + 2);  // bands of K, rho of V
  const PoolBytes all[] = {{"certified", 0, 32 * (2 * 128 + 8), 1.94},
                           {"witcert", 0, 32 * (2 * 128 + 4 * 4), 1.88},
                           {"witcert", 4, 32 * (2 * 128 + 4 * 4 + 16), 1.78},
                           {"witcert", 8, 32 * (2 * 128 + 4 * 4 + 32), 1.68},
                           {"witcert", 16, 32 * (2 * 128 + 4 * 4 + 64), 1.52},
                           {"observed:rtn-int8", 0, 32 * 2 * (128 + 8) + witness, 1.67},
                           {"observed:rtn-int8-tensor", 0, 32 * 2 * 128 + witness, 1.77},
                           {"observed:fp8-e4m3", 0, 32 * 2 * 128 + witness, 1.77},
                           {"observed:rtn-int4", 0, 32 * 2 * (64 + 8) + witness, 2.88},
                           {"observed:kivi-2", 0, 128 * (8 + 4) + 32 * (32 + 16) + witness, 3.94},
                           {"observed:kvquant-4", 0, 128 * (16 + 4) + 6 * 41 + 32 * (64 + 4) + witness, 2.70},
                           {"observed:stochastic-int8", 0, 32 * 2 * (128 + 8) + witness, 1.67},
                           {"observed:identity", 0, 32 * 2 * 256 + witness, 0.94}};
  EngineConfig config = pool_config("llama_hd128", "exact");
  config.block_size = 32;
  const auto exact = must_make(config);
  ASSERT_NE(exact, nullptr);
  for (const PoolBytes& want : all) {
    config.kv_pool = want.pool;
    config.kv_outlier_pairs = want.outlier_pairs;
    config.kv_radius = "witness";
    const auto executor = must_make(config);
    ASSERT_NE(executor, nullptr) << want.pool;
    const PoolInfo& pool = executor->pool();
    const int64_t heads = int64_t{executor->model().num_layers} * executor->model().num_kv_heads;
    EXPECT_EQ(pool.bytes_per_page, want.bytes * heads) << want.pool;
    EXPECT_EQ(pool.side_bytes_per_page, 2 * heads) << want.pool;
    EXPECT_EQ(pool.bytes_per_token_head, want.bytes / 32) << want.pool;
    const double ratio = static_cast<double>(pool.num_pages) / static_cast<double>(exact->pool().num_pages);
    EXPECT_NEAR(ratio, want.capacity, 0.01 * want.capacity) << want.pool;
  }
}

TEST(CertifiedPool, MetersDecodeAndPrefill) {
  const auto executor = must_make(pool_config("tiny", "certified"));
  ASSERT_NE(executor, nullptr);
  const uint64_t heads = static_cast<uint64_t>(executor->model().num_layers * executor->model().num_heads);
  TestSequence sequence(prompt_of(150, 3), 0, 400);
  SequenceSlice slice = sequence.slice(0, 100);
  kv::SequenceMeter meter = must_execute(*executor, {slice}).slices.at(0).meter;
  EXPECT_EQ(meter.cells[0].metered + meter.cells[1].metered, 0u);  // nothing stored was read
  slice = sequence.slice(100, 50);
  slice.meter.metered_stride = 64;
  const SliceResult chunk = must_execute(*executor, {slice}).slices.at(0);
  EXPECT_EQ(chunk.meter.cells[1].metered, 2 * heads);  // positions 128 and 149
  EXPECT_EQ(chunk.meter.cells[0].metered, 0u);
  sequence.tokens.push_back(chunk.token.token);
  meter = must_execute(*executor, {sequence.slice(150, 1)}).slices.at(0).meter;
  const kv::CellCounts& cells = meter.cells[0];
  EXPECT_EQ(cells.metered, heads);
  EXPECT_EQ(cells.certified + cells.conditional + cells.risk_ranked + cells.exact, heads);
  EXPECT_GT(cells.certified, heads * 9 / 10);
  EXPECT_EQ(cells.conditional + cells.exact + cells.overflow, 0u);
  EXPECT_GT(meter.worst[0].bound, 0.0f);
  EXPECT_EQ(meter.worst[0].position, 150);

  const std::vector<kv::HeadMeter> since_start = executor->read_head_meters(), again = executor->read_head_meters();
  ASSERT_EQ(since_start.size(), heads);
  float worst = 0;
  for (size_t i = 0; i < heads; ++i) {
    const kv::HeadMeter& head = since_start[i];
    EXPECT_EQ(head.metered[0], 1u);
    EXPECT_EQ(head.metered[1], 2u);
    uint32_t in_buckets = 0;
    for (uint32_t count : head.tv_buckets[1]) in_buckets += count;
    EXPECT_EQ(in_buckets, 2u);
    EXPECT_EQ(again[i].metered[1], 2u);
    EXPECT_EQ(again[i].recent_worst + again[i].tv_sum[0], 0.0f);
    EXPECT_EQ(again[i].worst, head.worst);
    worst = std::max(worst, head.worst);
  }
  EXPECT_GE(worst, meter.worst[0].bound);

  slice = sequence.slice(150, 1);
  slice.meter.tau = 1e-6f;
  meter = must_execute(*executor, {slice}).slices.at(0).meter;
  EXPECT_EQ(meter.cells[0].risk_ranked, heads);
}

// Everything said by the last chunk and some decode steps.
std::vector<float> trace(Executor& executor, TestSequence sequence, int32_t from, int32_t neighbours) {
  std::vector<float> said;
  sequence.sampling.logprobs = 5;
  std::vector<TestSequence> others;
  for (int32_t n = 0; n < neighbours; ++n) others.emplace_back(prompt_of(30 + 7 * n, 5 + n), 100 + 10 * n, 100);
  int32_t first = from;
  for (int32_t step = 0; step < 6; ++step) {
    std::vector<SequenceSlice> slices;
    for (const TestSequence& other : others)
      slices.push_back(other.slice(0, static_cast<int32_t>(other.tokens.size())));
    slices.push_back(sequence.slice(first, static_cast<int32_t>(sequence.tokens.size()) - first));
    const StepResult result = must_execute(executor, slices);
    const SliceResult& slice = result.slices.back();
    for (const auto& [id, logprob] : slice.token.top) said.insert(said.end(), {static_cast<float>(id), logprob});
    said.push_back(slice.meter.worst[0].raw);
    said.push_back(slice.meter.worst_value[0].raw);
    first = static_cast<int32_t>(sequence.tokens.size());
    sequence.tokens.push_back(slice.token.token);
  }
  return said;
}

class SamePool : public testing::TestWithParam<const char*> {};

TEST_P(SamePool, SameChunkBoundariesSameBits) {
  EngineConfig config = pool_config("qwen2_hd64_group7", GetParam(), 1);
  config.block_size = 32;
  config.kv_seed = 3;
  config.max_num_seqs = 16;
  const auto one = must_make(config);
  config.threads = 3;
  const auto three = must_make(config);
  ASSERT_TRUE(one && three);
  const TestSequence sequence(prompt_of(150, 3), 0, 400);
  std::vector<std::vector<float>> traces;
  for (Executor* executor : {one.get(), three.get()}) {
    for (int32_t neighbours : {0, 3}) {
      must_execute(*executor, {sequence.slice(0, 128)});
      traces.push_back(trace(*executor, sequence, 128, neighbours));
    }
  }
  // A prefix hit at the same boundary reads the pages the first one wrote.
  TestSequence hit(prompt_of(150, 3), 40, 400);
  std::copy_n(sequence.pages.begin(), 4, hit.pages.begin());
  traces.push_back(trace(*three, hit, 128, 1));
  for (const std::vector<float>& t : traces) EXPECT_EQ(t, traces[0]);
}

INSTANTIATE_TEST_SUITE_P(Pools, SamePool,
                         testing::Values("certified", "witcert", "observed:rtn-int8", "observed:rtn-int8-tensor",
                                         "observed:fp8-e4m3", "observed:rtn-int4", "observed:kivi-2",
                                         "observed:kvquant-4", "observed:stochastic-int8", "observed:identity"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(name.begin(), name.end(), [](char c) { return c == ':' || c == '-'; }, '_');
                           return name;
                         });

// Other boundaries: other rounding, the same distribution closely. One chunk reads nothing stored: it is the exact run.
TEST(CertifiedPool, OtherChunkBoundariesStayClose) {
  const auto certified = must_make(pool_config("tiny", "certified")), exact = must_make(pool_config("tiny", "exact"));
  ASSERT_TRUE(certified && exact);
  TestSequence sequence(prompt_of(200, 11), 0, 400);
  sequence.sampling.logprobs = 5;
  const TokenLogprobs expected = prefill(*exact, sequence, 4096).token;
  for (int32_t chunk : {4096, 100, 17, 16}) {
    const TokenLogprobs got = prefill(*certified, sequence, chunk).token;
    EXPECT_EQ(got.token, expected.token) << chunk;
    EXPECT_NEAR(got.logprob, expected.logprob, chunk == 4096 ? 2e-2 : 0.1) << chunk;
  }
}

TEST(CertifiedPool, RefusesWhatItCannotDo) {
  EngineConfig config = pool_config("tiny", "certified");
  config.kv_bound = "gut";
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("kv_bound"));
  config = pool_config("tiny", "certified:8");
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("no scheme"));
  config = pool_config("tiny", "observed:int9");
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("kvquant-4"));
  config = pool_config("tiny", "observed:kivi-2");
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("multiple of it, got 16"));
  config = pool_config("tiny", "observed:rtn-int8");
  config.kv_radius = "both";
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("use witness"));
  config = pool_config("tiny", "witcert");
  config.kv_radius = "both";
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("use dither"));
  config = pool_config("tiny", "certified");
  config.kv_outlier_pairs = 4;
  EXPECT_THAT(std::string(make_executor(config).status().message()), testing::HasSubstr("witcert"));
}

// q, k, v of every layer, as attention sees them.
class Capture final : public QkvObserver {
 public:
  void observe(int32_t, ConstTensor qkv) override {
    layers.emplace_back(qkv.f32(), qkv.f32() + qkv.rows * qkv.row_stride);
  }
  std::vector<std::vector<float>> layers;
};

TEST(CertifiedPool, MeterHoldsOnTheBundledModel) {
  const std::string folder = model_dir("tiny");
  const auto config = load_model_config(folder);
  auto source = Checkpoint::open(folder);
  ASSERT_TRUE(config.ok() && source.ok());
  const auto weights = load_decoder_weights(*config, **source, {0, 1});
  ASSERT_TRUE(weights.ok());
  CpuDevice device(2);
  CpuOps ops(2);
  const auto comm = make_single_communicator();
  constexpr int32_t kTokens = 400, kStored = 380;
  auto decoder = DecoderModel::create(*config, *weights, rope_frequencies(config->rope, config->head_dim, 8192, 4096),
                                      device, ops, *comm, 512, 1);
  ASSERT_TRUE(decoder.ok());
  const auto moments = measure_moments(prompt_of(512, 5), 512, *config, **decoder, device);
  ASSERT_TRUE(moments.ok());
  const std::vector<float> lambda = balance_of(*moments, config->head_dim);
  const auto layout =
      make_pool_layout("exact", {config->num_layers, config->num_kv_heads, config->head_dim, 16, DType::kF32});
  const auto pool = KvPool::make(device, *layout, kTokens / 16, {});
  ASSERT_TRUE(layout.ok() && pool.ok());
  const TestSequence sequence(prompt_of(kTokens, 3), 0, kTokens);
  StepBatch batch;
  ASSERT_TRUE(
      batch.stage(plan_of({sequence.slice(0, kTokens)}), {512, config->vocab_size, 16, kTokens / 16}, {}, device).ok());
  Capture capture;
  (*decoder)->forward(batch.view(), pool->view(), {}, {}, &capture);
  ASSERT_EQ(capture.layers.size(), static_cast<size_t>(config->num_layers));

  const int32_t group = config->num_heads / config->num_kv_heads;
  const size_t head_floats = static_cast<size_t>(config->num_kv_heads * config->head_dim);
  int32_t cells = 0, covered = 0;
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    PoolModel model({config->num_kv_heads, group, config->head_dim, 16, DType::kBF16}, {kTokens});
    model.qkv[0] = capture.layers[layer];
    const auto first = lambda.begin() + static_cast<int64_t>(layer * head_floats);
    model.set_balance({first, first + static_cast<int64_t>(head_floats)});
    model.run(ops, {{0, 0, kStored}});
    const PoolModel::Result result = model.run(ops, {{0, kStored, kTokens - kStored}});
    for (int32_t p = kStored; p < kTokens; p += 6) {
      for (int32_t h = 0; h < config->num_heads; ++h) {
        const kv::MeterCell& cell = result.cells[static_cast<size_t>((p - kStored) * config->num_heads + h)];
        const CellTruth truth = truth_of(model, 0, p, h, kStored);
        const kv::CellVerdict verdict = kv::judge_cell(cell, {}, kv::BoundKind::kBest, kv::RadiusKind::kWitness);
        ASSERT_GE(verdict.meter.tv, truth.tv) << "layer " << layer << " head " << h;
        ++cells;
        covered += verdict.label == kv::CellLabel::kCertified;
      }
    }
  }
  EXPECT_GE(covered, cells * 9 / 10);
  RecordProperty("coverage_at_tau_0.2", std::to_string(covered) + " of " + std::to_string(cells));
}

TEST(MeteredRows, DecodeAlwaysPrefillByStride) {
  const std::vector<int32_t> tokens(300);
  SequenceSlice decode;
  decode.tokens = tokens.data();
  decode.num_known_tokens = 201;
  decode.num_prompt_tokens = 150;
  decode.first_position = 200;
  decode.num_tokens = 1;
  decode.meter.metered_stride = 0;
  SequenceSlice last_prompt = decode;  // one token, of the prompt: prefill
  last_prompt.num_prompt_tokens = 201;
  SequenceSlice chunk = decode;
  chunk.num_known_tokens = 300;
  chunk.first_position = 60;
  chunk.num_tokens = 10;
  chunk.meter.metered_stride = 64;
  SequenceSlice fresh = chunk;
  fresh.first_position = 0;
  SequenceSlice off = chunk;
  off.meter.metered_stride = 0;
  StepPlan plan = plan_of({fresh, chunk, decode, off, last_prompt});
  const std::vector<kv::MeteredRow> rows = metered_rows(plan);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].row, 14);
  EXPECT_EQ(rows[0].position, 64);
  EXPECT_EQ(rows[1].position, 69);
  EXPECT_EQ(rows[1].phase, kv::Phase::kPrefill);
  EXPECT_EQ(rows[2].row, 20);
  EXPECT_EQ(rows[2].phase, kv::Phase::kDecode);
  EXPECT_EQ(rows[2].sequence, 2);
}

TEST(Balance, GeometricMeanIsOneAndZerosAreLeftAlone) {
  ChannelMoments moments;
  moments.key = {16, 1, 0, 4};
  moments.query = {1, 16, 1, 4};
  const std::vector<float> lambda = balance_of(moments, 4);
  EXPECT_NEAR(lambda[0], 2, 1e-6);
  EXPECT_NEAR(lambda[1], 0.5, 1e-6);
  EXPECT_NEAR(lambda[2], 1, 1e-6);
  EXPECT_NEAR(lambda[3], 1, 1e-6);
}

}  // namespace
}  // namespace assay
