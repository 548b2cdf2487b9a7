// The executor's contract: what it says of itself, broken plans, broken numbers, dummy weights, sampling rules.
#include <cmath>
#include <fstream>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/golden/sequence_driver.h"
#include "tests/unit/weights/safetensors_file.h"

namespace assay {
namespace {

using testing::HasSubstr;

std::string model_dir(const char* name) {
  return std::string(ASSAY_TEST_DATA) + "/models/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Executor, DescribesModelAndPool) {
  EngineConfig config = test_config(model_dir("tiny"));
  config.max_model_len = 0;
  auto executor = make_executor(config);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  const ModelInfo& model = (*executor)->model();
  EXPECT_EQ(model.architecture, "LlamaForCausalLM");
  EXPECT_EQ(model.dtype, "bfloat16");
  EXPECT_EQ(model.vocab_size, 6144);
  EXPECT_EQ(model.max_model_len, 8192);
  EXPECT_NEAR(static_cast<double>(model.num_parameters), 18.1e6, 0.05e6);
  EXPECT_EQ(model.weight_bytes, 2 * model.num_parameters);
  EXPECT_THAT(model.eos_token_ids, testing::ElementsAre(6143, 6141));
  const PoolInfo& pool = (*executor)->pool();
  EXPECT_EQ(pool.pool, "exact");
  EXPECT_EQ(pool.bytes_per_token_head, 512);
  EXPECT_EQ(pool.num_pages, (int64_t{1} << 30) / pool.bytes_per_page);
  EXPECT_EQ(config.kv_cache_dtype, "bfloat16");
}

TEST(Executor, SaysWhatIsWrongWithAFolder) {
  TempFolder folder;
  EngineConfig config = test_config(folder.path());
  EXPECT_THAT(std::string(make_executor(config).status().message()), HasSubstr("config.json"));
  config = test_config("/nonexistent/folder");
  EXPECT_FALSE(make_executor(config).ok());
  folder.write("config.json", read_file(model_dir("llama_hd128") + "/config.json"));
  config = test_config(folder.path());
  EXPECT_THAT(std::string(make_executor(config).status().message()), HasSubstr("model.safetensors"));
  const std::string weights = read_file(model_dir("llama_hd128") + "/model.safetensors");
  folder.write("model.safetensors", weights.substr(0, weights.size() / 2));
  config = test_config(folder.path());
  EXPECT_THAT(std::string(make_executor(config).status().message()), HasSubstr("truncated"));
  folder.write("model.safetensors", read_file(model_dir("llama_mha_plain") + "/model.safetensors"));
  config = test_config(folder.path());
  EXPECT_THAT(std::string(make_executor(config).status().message()), HasSubstr("self_attn.q_proj.weight"));
}

TEST(Executor, DummyWeightsNeedOnlyTheConfig) {
  TempFolder folder;
  folder.write("config.json", read_file(model_dir("qwen3_headdim32") + "/config.json"));
  EngineConfig config = test_config(folder.path());
  config.dummy_weights = true;
  std::vector<int32_t> tokens;
  for (uint64_t seed : {1, 1, 2}) {
    config.seed = seed;
    const auto executor = must_make(config);
    ASSERT_NE(executor, nullptr);
    TestSequence sequence({1, 2, 3, 4, 5}, 0, 64);
    sequence.sampling.logprobs = 0;
    for (int i = 0; i < 8; ++i) {
      sequence.tokens.push_back(prefill(*executor, sequence, 64).token.token);
      tokens.push_back(sequence.tokens.back());
    }
  }
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + 8, tokens.begin() + 8));
  EXPECT_FALSE(std::equal(tokens.begin(), tokens.begin() + 8, tokens.begin() + 16));
}

TEST(Executor, RefusesBrokenPlans) {
  const auto executor = must_make(test_config(model_dir("llama_hd128")));
  ASSERT_NE(executor, nullptr);
  const TestSequence good({1, 2, 3}, 0, 64);
  const auto problem = [&](const SequenceSlice& slice) {
    return std::string(executor->execute(plan_of({slice})).status().message());
  };
  EXPECT_EQ(problem(good.slice(0, 3)), "");
  TestSequence bad = good;
  bad.tokens[1] = 512;
  EXPECT_THAT(problem(bad.slice(0, 3)), HasSubstr("vocabulary"));
  bad = good;
  bad.pages[0] = 1 << 20;
  EXPECT_THAT(problem(bad.slice(0, 3)), HasSubstr("page"));
  SequenceSlice slice = good.slice(0, 3);
  slice.num_pages = 0;
  EXPECT_THAT(problem(slice), HasSubstr("without pages"));
  EXPECT_THAT(problem(good.slice(2, 2)), HasSubstr("more positions"));
  EXPECT_FALSE(executor->execute(StepPlan()).ok());
}

// A model whose weights hold a NaN for one token: the sequence that meets it fails, its neighbour does not notice.
TEST(Executor, NotFiniteFailsOneSliceOnly) {
  TempFolder folder;
  folder.write("config.json", read_file(model_dir("llama_hd128") + "/config.json"));
  std::string weights = read_file(model_dir("llama_hd128") + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, weights.data(), 8);
  const auto fields = nlohmann::json::parse(weights.substr(8, header));
  const size_t begin = 8 + header + fields["model.embed_tokens.weight"]["data_offsets"][0].get<size_t>();
  const uint16_t nan = 0x7fc0;
  std::memcpy(weights.data() + begin + 77 * 128 * 2, &nan, 2);  // embedding of token 77
  folder.write("model.safetensors", weights);
  const auto executor = must_make(test_config(folder.path()));
  const auto healthy = must_make(test_config(model_dir("llama_hd128")));
  ASSERT_TRUE(executor && healthy);
  TestSequence poisoned({5, 77, 6}, 0, 64), clean({5, 9, 6, 11}, 8, 64);
  poisoned.sampling.prompt_logprobs = 1;
  const int32_t expected = prefill(*healthy, clean, 64).token.token;
  for (int round = 0; round < 2; ++round) {
    const auto result = executor->execute(plan_of({poisoned.slice(0, 3), clean.slice(0, 4)}));
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result->slices[0].status.ok());
    EXPECT_THAT(std::string(result->slices[0].status.message()), HasSubstr("not finite"));
    EXPECT_TRUE(result->slices[1].status.ok());
    EXPECT_EQ(result->slices[1].token.token, expected);
  }
  // The poisoned pages serve another sequence afterwards.
  TestSequence reuse = clean;
  reuse.pages = poisoned.pages;
  EXPECT_EQ(prefill(*executor, reuse, 64).token.token, expected);
}

TEST(Executor, MinTokensForbidsStopsAndBiasForces) {
  const auto executor = must_make(test_config(model_dir("llama_hd128")));
  ASSERT_NE(executor, nullptr);
  TestSequence sequence({1, 2, 3}, 0, 64);
  sequence.sampling.logit_bias = {{2, 100.0f}};  // 2 is the end of sequence
  EXPECT_EQ(prefill(*executor, sequence, 64).token.token, 2);
  SequenceSlice slice = sequence.slice(0, 3);
  slice.forbid_stop = true;
  EXPECT_NE(must_execute(*executor, {slice}).slices.at(0).token.token, 2);
  sequence.sampling.stop_token_ids = {9};
  sequence.sampling.logit_bias = {{9, 100.0f}, {7, 50.0f}};
  EXPECT_EQ(must_execute(*executor, {slice}).slices.at(0).token.token, 7);
}

// Raw log probabilities do not feel temperature, bias or penalties.
TEST(Executor, LogprobsAreRaw) {
  const auto executor = must_make(test_config(model_dir("llama_hd128")));
  ASSERT_NE(executor, nullptr);
  TestSequence sequence({1, 2, 3}, 0, 64);
  sequence.sampling.logprobs = 3;
  const TokenLogprobs plain = prefill(*executor, sequence, 64).token;
  EXPECT_EQ(plain.rank, 1);
  sequence.sampling.logit_bias = {{plain.token, -100.0f}};
  sequence.sampling.temperature = 0.5f;
  const TokenLogprobs biased = prefill(*executor, sequence, 64).token;
  EXPECT_NE(biased.token, plain.token);
  EXPECT_GT(biased.rank, 1);
  EXPECT_EQ(biased.top, plain.top);
}

}  // namespace
}  // namespace assay
