// What the engine generates: tokens, scores, sharing, whatever the batching.
#include "tests/unit/engine/engine_fixture.h"

namespace assay {
namespace {

using test::EngineTest;
using test::FakeExecutor;
using testing::HasSubstr;

TEST_F(EngineTest, ResolvesItsConfiguration) {
  start();
  EXPECT_EQ(engine_->config().max_model_len, 64);
  EXPECT_EQ(engine_->config().max_num_batched_tokens, 2048);
  EXPECT_EQ(engine_->model().vocab_size, 16);
  EXPECT_EQ(engine_->pool().num_pages, 64);
}

TEST_F(EngineTest, RefusesLimitsThatMakeNoSense) {
  config_.max_num_seqs = 0;
  const auto engine = EngineImpl::create(config_, std::make_unique<FakeExecutor>(model_));
  EXPECT_TRUE(absl::IsInvalidArgument(engine.status()));
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("max_num_seqs"));
}

TEST_F(EngineTest, GeneratesWhatTheModelSays) {
  start();
  const Request asked = request(numbers(6));
  auto stream = submit(asked);
  finish_all();
  const Outcome got = outcome(*stream);
  EXPECT_EQ(got.tokens, alone(asked));
  ASSERT_TRUE(got.last);
  EXPECT_EQ(got.last->finish, FinishReason::kLength);
  EXPECT_TRUE(got.last->token) << "the last token comes with the terminal event";
  EXPECT_EQ(got.events.size(), 8u);
}

TEST_F(EngineTest, StopsAtAnIdAndNamesIt) {
  start();
  Request asked = request(numbers(6));
  const int32_t third = alone(asked)[2];
  asked.sampling.stop_token_ids = {third};
  auto stream = submit(asked);
  finish_all();
  const Outcome got = outcome(*stream);
  EXPECT_EQ(got.tokens, alone(asked));
  EXPECT_LE(got.tokens.size(), 3u);
  EXPECT_EQ(got.last->finish, FinishReason::kStop);
  EXPECT_EQ(got.last->stop_token, third);
  EXPECT_EQ(got.last->token, third);
}

TEST_F(EngineTest, EndsWhereTheContextIsFull) {
  model_.max_model_len = 12;
  start();
  auto stream = submit(request(numbers(8), 1000));
  finish_all();
  const Outcome got = outcome(*stream);
  EXPECT_EQ(got.tokens.size(), 4u);
  EXPECT_EQ(got.last->finish, FinishReason::kLength);
}

TEST_F(EngineTest, EndsWhereThePoolIsFull) {
  model_.num_pages = 3;
  start();
  auto stream = submit(request(numbers(8), 1000));
  finish_all();
  EXPECT_EQ(outcome(*stream).tokens.size(), 4u);
}

// Chunk size and prompt length must not show.
TEST_F(EngineTest, AnyChunkSizeGivesTheSameTokens) {
  model_.block_size = 16;
  for (const int32_t chunk : {1, 5, 16, 4096}) {
    config_.max_num_batched_tokens = chunk;
    start();
    for (const int32_t length : {1, 15, 16, 17, 31, 32, 33}) {
      const Request asked = request(numbers(length, length));
      auto stream = submit(asked);
      finish_all();
      EXPECT_EQ(outcome(*stream).tokens, alone(asked)) << "prompt of " << length << " in chunks of " << chunk;
    }
  }
}

TEST_F(EngineTest, NoTokenComesOfAPartialChunk) {
  config_.max_num_batched_tokens = 4;
  start();
  auto stream = submit(request(numbers(10)));
  step(2);
  EXPECT_TRUE(stream->take().empty());
  step(1);
  EXPECT_EQ(stream->take().size(), 1u);
}

TEST_F(EngineTest, CachedTokensAreZeroFirstAndWholePagesThen) {
  start();
  const Request asked = request(numbers(10), 2);
  auto first = submit(asked);
  finish_all();
  auto second = submit(asked);
  finish_all();
  const Outcome cold = outcome(*first), warm = outcome(*second);
  EXPECT_EQ(cold.last->usage.cached_tokens, 0);
  EXPECT_EQ(warm.last->usage.cached_tokens, 8);
  EXPECT_EQ(warm.tokens, cold.tokens);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.prefix_cache_queries_total, 20);
  EXPECT_EQ(stats.prefix_cache_hits_total, 8);
  EXPECT_EQ(stats.prefill_tokens_computed_total, 12);
  EXPECT_EQ(stats.prompt_tokens_total, 20);
}

TEST_F(EngineTest, GeneratedPagesServeTheNextTurn) {
  start();
  const Request asked = request(numbers(6), 8);
  auto first = submit(asked);
  finish_all();
  Request next = request(numbers(6));
  for (const int32_t token : alone(asked)) next.prompt.push_back(token);
  next.prompt.push_back(1);
  auto second = submit(next);
  finish_all();
  EXPECT_EQ(outcome(*second).last->usage.cached_tokens, 12) << "13 tokens were computed: 6 + 8 less the last";
}

// A short hash collides all the time; hits are verified, so nothing but time is lost.
TEST_F(EngineTest, CollidingHashesDoNotChangeResults) {
  model_.num_pages = 4096;
  for (const int32_t bits : {8, 0}) {
    auto executor = std::make_unique<FakeExecutor>(model_);
    executor_ = executor.get();
    EngineOptions options;
    options.prefix_hash_bits = bits;
    options.start_thread = false;
    engine_ = EngineImpl::create(config_, std::move(executor), options).value();
    for (int32_t i = 0; i < 200; ++i) {
      Request asked = request(numbers(9 + i % 30, i), 4);
      asked.cache_salt = i % 3 == 0 ? "" : std::to_string(i % 3);
      auto stream = submit(asked);
      finish_all();
      ASSERT_EQ(outcome(*stream).tokens, alone(asked));
    }
    EXPECT_EQ(executor_->violation(), "");
  }
}

TEST_F(EngineTest, SiblingsShareTheirPromptAndDiffer) {
  start();
  Request asked = request(numbers(10));
  asked.num_sequences = 3;
  auto stream = submit(asked);
  step();
  EXPECT_EQ(engine_->stats().num_running, 1) << "siblings wait for the first to compute the prompt";
  step();
  EXPECT_EQ(engine_->stats().num_running, 3);
  EXPECT_EQ(engine_->stats().pages_in_use, 2 + 3);
  finish_all();
  const std::vector<Event> events = stream->take();
  for (int32_t index = 0; index < 3; ++index) {
    std::vector<int32_t> tokens;
    for (const Event& event : events) {
      if (event.sequence == index && event.token) tokens.push_back(*event.token);
      if (event.sequence != index || !event.finish) continue;
      EXPECT_EQ(event.usage.cached_tokens, index == 0 ? 0 : 8);
    }
    EXPECT_EQ(tokens, alone(asked, index));
  }
  EXPECT_NE(alone(asked, 0), alone(asked, 1));
  EXPECT_EQ(engine_->stats().prompt_tokens_total, 10) << "one prompt";
}

TEST_F(EngineTest, SiblingsAreRightWithoutPrefixCachingToo) {
  config_.enable_prefix_caching = false;
  start();
  Request asked = request(numbers(10));
  asked.num_sequences = 2;
  auto stream = submit(asked);
  finish_all();
  std::vector<int32_t> second;
  for (const Event& event : stream->take()) {
    if (event.sequence == 1 && event.token) second.push_back(*event.token);
    EXPECT_EQ(event.usage.cached_tokens, 0);
  }
  EXPECT_EQ(second, alone(asked, 1));
}

TEST_F(EngineTest, SiblingsGoOnWhenTheFirstIsStopped) {
  start();
  Request asked = request(numbers(10));
  asked.num_sequences = 2;
  auto stream = submit(asked);
  stream->stop(0);
  finish_all();
  EXPECT_EQ(outcome(*stream, 1).tokens, alone(asked, 1));
}

TEST_F(EngineTest, PromptScoresComeOnceBeforeTheFirstToken) {
  config_.max_num_batched_tokens = 4;
  start();
  Request asked = request(numbers(10), 2);
  asked.sampling.prompt_logprobs = 0;
  for (int32_t round = 0; round < 2; ++round) {  // the second time the prompt is in the cache, which must not be used
    auto stream = submit(asked);
    finish_all();
    const Outcome got = outcome(*stream);
    ASSERT_EQ(got.events.size(), 3u);
    ASSERT_EQ(got.events[0].prompt_logprobs.size(), 10u);
    EXPECT_FALSE(got.events[0].token);
    for (int32_t i = 1; i < 10; ++i) {
      EXPECT_EQ(got.events[0].prompt_logprobs[i].token, asked.prompt[i]);
      EXPECT_EQ(got.events[0].prompt_logprobs[i].logprob, test::fake_logprob(asked.prompt, i));
    }
    EXPECT_EQ(got.tokens, alone(asked));
    EXPECT_EQ(got.last->usage.cached_tokens, 0);
  }
}

TEST_F(EngineTest, APromptCanBeScoredWithoutGenerating) {
  start();
  Request asked = request(numbers(64), 0);
  asked.sampling.prompt_logprobs = 0;
  auto stream = submit(asked);
  finish_all();
  const Outcome got = outcome(*stream);
  EXPECT_TRUE(got.tokens.empty());
  EXPECT_EQ(got.events[0].prompt_logprobs.size(), 64u);
  EXPECT_EQ(got.last->finish, FinishReason::kLength);
}

TEST_F(EngineTest, LogprobsComeOnlyWhenAskedFor) {
  start();
  Request asked = request(numbers(4), 3);
  auto plain = submit(asked);
  asked.sampling.logprobs = 0;
  auto scored = submit(asked);
  finish_all();
  for (const Event& event : plain->take()) EXPECT_FALSE(event.logprobs);
  for (const Event& event : scored->take()) {
    ASSERT_TRUE(event.logprobs);
    EXPECT_EQ(event.logprobs->token, event.token);
  }
}

}  // namespace
}  // namespace assay
