// The same sequence gives the same bits whatever the chunk size, batch, thread count, pages, prefix hits or
// recomputation.
#include <cstring>

#include "gtest/gtest.h"
#include "tests/golden/sequence_driver.h"

namespace assay {
namespace {

constexpr int32_t kPromptTokens = 150, kNewTokens = 12;

std::vector<int32_t> prompt_of(int32_t length, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back((i * i * 31 + i * seed + 7) % 500);
  return tokens;
}

// Everything a run says, as bytes that can be compared.
struct Trace {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  void add(const TokenLogprobs& t) {
    tokens.push_back(t.token);
    tokens.push_back(t.rank);
    logprobs.push_back(t.logprob);
    for (const auto& [id, logprob] : t.top) {
      tokens.push_back(id);
      logprobs.push_back(logprob);
    }
  }
  bool same_bits(const Trace& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};

class Determinism : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Executor> make(int32_t threads, int32_t block_size = 16) {
    EngineConfig config = test_config(std::string(ASSAY_TEST_DATA) + "/models/" + GetParam());
    config.threads = threads;
    config.block_size = block_size;
    config.kv_cache_memory_bytes = int64_t{256} << 20;
    return must_make(config);
  }

  static TestSequence subject(int32_t first_page, int32_t block_size = 16) {
    TestSequence sequence(prompt_of(kPromptTokens, 3), first_page, 400, block_size);
    sequence.sampling.temperature = 0.8f;
    sequence.sampling.top_p = 0.95f;
    sequence.sampling.repetition_penalty = 1.1f;
    sequence.sampling.logprobs = sequence.sampling.prompt_logprobs = 5;
    sequence.seed = 42;
    return sequence;
  }

  // Chunked prefill, then decode; `neighbours` sequences run along in the same steps.
  static Trace run(Executor& executor, int32_t chunk, int32_t neighbours, int32_t first_page = 0,
                   int32_t block_size = 16) {
    TestSequence sequence = subject(first_page, block_size);
    std::vector<TestSequence> others;
    for (int32_t n = 0; n < neighbours; ++n) {
      others.emplace_back(prompt_of(40 + 13 * n, 5 + n), first_page + 64 * (n + 1), 400, block_size);
    }
    Trace trace;
    bool fresh = true;
    for (int32_t first = 0; sequence.tokens.size() < kPromptTokens + kNewTokens;) {
      const int32_t known = static_cast<int32_t>(sequence.tokens.size()), count = std::min(chunk, known - first);
      std::vector<SequenceSlice> slices;
      for (TestSequence& other : others) {
        const int32_t size = static_cast<int32_t>(other.tokens.size());
        slices.push_back(fresh ? other.slice(0, size) : other.slice(size - 1, 1));
      }
      slices.insert(slices.begin() + static_cast<int64_t>(slices.size() / 2), sequence.slice(first, count));
      const StepResult result = must_execute(executor, slices);
      for (size_t s = 0, n = 0; s < result.slices.size(); ++s) {
        const SliceResult& slice = result.slices[s];
        if (s != others.size() / 2) {
          others[n++].tokens.push_back(slice.token.token);
          continue;
        }
        for (const TokenLogprobs& scored : slice.prompt_logprobs) trace.add(scored);
        if (!slice.sampled) continue;
        trace.add(slice.token);
        sequence.tokens.push_back(slice.token.token);
      }
      first += count;
      fresh = false;
    }
    return trace;
  }
};

TEST_P(Determinism, ChunksBatchesThreadsAndPages) {
  const auto one = make(1), three = make(3);
  const Trace expected = run(*one, 4096, 0);
  ASSERT_EQ(expected.tokens.size(), size_t{(kPromptTokens - 1 + kNewTokens) * 7});
  for (Executor* executor : {one.get(), three.get()}) {
    for (int32_t chunk : {1, 16, 17, 4096}) {
      for (int32_t neighbours : {0, 1, 4}) {
        EXPECT_TRUE(run(*executor, chunk, neighbours, chunk % 7).same_bits(expected))
            << "chunk " << chunk << ", " << neighbours << " neighbours";
      }
    }
  }
  EXPECT_TRUE(run(*make(2, 48), 33, 2, 5, 48).same_bits(expected));
}

// A preempted sequence recomputes prompt and output as one prefill; a prefix hit starts behind pages another one wrote.
TEST_P(Determinism, RecomputationAndPrefixHits) {
  const auto executor = make(2);
  const Trace expected = run(*executor, 64, 0);
  TestSequence sequence = subject(100);
  for (size_t i = expected.tokens.size() - kNewTokens * 7; sequence.tokens.size() < kPromptTokens + 5; i += 7) {
    sequence.tokens.push_back(expected.tokens[i]);
  }
  const TokenLogprobs next = prefill(*executor, sequence, 50).token;
  const size_t at = expected.tokens.size() - (kNewTokens - 5) * 7;
  EXPECT_EQ(next.token, expected.tokens[at]);
  EXPECT_EQ(next.logprob, expected.logprobs[expected.logprobs.size() - (kNewTokens - 5) * 6]);

  TestSequence hit = subject(200);
  for (size_t page = 0; page < 8; ++page) hit.pages[page] = sequence.pages[page];
  const StepResult result = must_execute(*executor, {hit.slice(128, kPromptTokens - 128)});
  EXPECT_EQ(result.slices.at(0).token.token, expected.tokens[expected.tokens.size() - kNewTokens * 7]);
  EXPECT_EQ(result.slices.at(0).token.logprob, expected.logprobs[expected.logprobs.size() - kNewTokens * 6]);
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism,
                         testing::Values("llama_hd128", "qwen2_hd64_group7", "qwen3_headdim32", "llama_yarn_sharded"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace assay
