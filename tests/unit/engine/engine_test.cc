// The engine stepped by hand, with a fake executor and a fake clock.
#include "engine/core/engine_impl.h"

#include <cmath>
#include <stdexcept>

#include "engine/core/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/fake_executor.h"

namespace assay {
namespace {

using testing::HasSubstr;
using test::Continuation;
using test::FakeExecutor;
using test::FakeModelOptions;

class EngineTest : public testing::Test {
 protected:
  // Call after changing model_ or config_.
  void start() {
    auto executor = std::make_unique<FakeExecutor>(model_);
    executor_ = executor.get();
    EngineOptions options;
    options.now = [this] { return now_; };
    options.start_thread = false;
    engine_ = EngineImpl::create(config_, std::move(executor), options).value();
  }

  void TearDown() override {
    if (!engine_) return;
    EXPECT_EQ(executor_->violation(), "");
    EXPECT_EQ(engine_->loop().cache().find_violation(), "");
  }

  static Request request(std::vector<int32_t> prompt, int32_t max_tokens = 8) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    request.sampling.seed = 42;
    request.sampling.ignore_eos = true;
    return request;
  }

  static std::vector<int32_t> numbers(int32_t count, int32_t first = 0) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i) tokens.push_back((first + i * 7) % 16);
    return tokens;
  }

  std::unique_ptr<Stream> submit(const Request& request) { return engine_->submit(request).value(); }

  void step(int32_t count = 1) {
    for (int32_t i = 0; i < count; ++i) {
      engine_->step();
      now_ += std::chrono::seconds(1);
    }
  }

  void finish_all() {
    for (int32_t i = 0; i < 10'000 && (!engine_->loop().idle() || i == 0); ++i) step();
    ASSERT_TRUE(engine_->loop().idle());
  }

  std::vector<int32_t> alone(const Request& request, int32_t index = 0) {
    const int32_t context = std::min(model_.max_model_len, model_.num_pages * model_.block_size);
    return test::run_alone(model_, request, derived_seed(*request.sampling.seed, index), context).tokens;
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    std::optional<Event> last;
    std::vector<Event> events;
  };
  static Outcome outcome(Stream& stream, int32_t sequence = 0) {
    Outcome outcome;
    for (Event& event : stream.take()) {
      if (event.sequence != sequence) continue;
      EXPECT_FALSE(outcome.last) << "nothing follows a terminal event";
      if (event.token) outcome.tokens.push_back(*event.token);
      if (event.finish) outcome.last = event;
      outcome.events.push_back(event);
    }
    return outcome;
  }

  FakeModelOptions model_;
  EngineConfig config_;
  TimePoint now_{};
  FakeExecutor* executor_ = nullptr;
  std::unique_ptr<EngineImpl> engine_;
};

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

// A pool for about two sequences and eight long requests.
TEST_F(EngineTest, PreemptionDoesNotShow) {
  model_.num_pages = 12;
  model_.max_model_len = 40;
  for (const bool prefix_caching : {true, false}) {
    config_.enable_prefix_caching = prefix_caching;
    start();
    std::vector<Request> asked;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int32_t i = 0; i < 8; ++i) {
      asked.push_back(request(numbers(5, i), 30));
      asked.back().sampling.logprobs = 0;
      streams.push_back(submit(asked.back()));
    }
    finish_all();
    int32_t preemptions = 0;
    for (int32_t i = 0; i < 8; ++i) {
      const Outcome got = outcome(*streams[i]);
      EXPECT_EQ(got.tokens, alone(asked[i]));
      EXPECT_EQ(got.last->finish, FinishReason::kLength);
      EXPECT_EQ(got.last->usage.cached_tokens, 0) << "what was computed again after a preemption is no hit";
      EXPECT_EQ(got.last->usage.prompt_tokens, 5);
      EXPECT_EQ(got.last->usage.completion_tokens, 30);
      for (const Event& event : got.events) EXPECT_TRUE(event.logprobs);
      preemptions += got.last->usage.preemptions;
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_EQ(engine_->stats().preemptions_total, preemptions);
    EXPECT_EQ(engine_->stats().pages_in_use, 0);
    EXPECT_EQ(executor_->violation(), "");
  }
}

TEST_F(EngineTest, TimesAddUpAndFirstTokenIsNotRecordedAgain) {
  model_.num_pages = 5;
  start();
  auto first = submit(request(numbers(7), 12));
  now_ += std::chrono::seconds(10);
  auto second = submit(request(numbers(6, 3), 8));
  finish_all();
  const Outcome a = outcome(*first), b = outcome(*second);
  EXPECT_GT(b.last->usage.preemptions, 0);
  EXPECT_EQ(a.last->usage.queue_s, 10.0);
  EXPECT_EQ(a.last->usage.prefill_s, 0.0) << "one step, and the clock moves between steps";
  EXPECT_EQ(a.last->usage.decode_s, 11.0);
  const SequenceUsage& usage = b.last->usage;
  EXPECT_EQ(usage.queue_s + usage.prefill_s, 0.0);
  EXPECT_GT(usage.decode_s, 11.0) << "waiting after a preemption is part of decoding";
}

TEST_F(EngineTest, LowerPriorityValueRunsFirstThenArrival) {
  config_.max_num_seqs = 1;
  start();
  std::vector<std::unique_ptr<Stream>> streams;
  for (const int32_t priority : {1, 0, 1, -5}) {
    Request asked = request(numbers(4), 2);
    asked.priority = priority;
    streams.push_back(submit(asked));
  }
  std::vector<int32_t> order;
  for (int32_t i = 0; i < 8; ++i) {
    step();
    for (int32_t s = 0; s < 4; ++s) {
      if (outcome(*streams[s]).last) order.push_back(s);
    }
  }
  EXPECT_EQ(order, (std::vector<int32_t>{3, 1, 0, 2}));
}

TEST_F(EngineTest, CancellingFreesPagesWithinAStep) {
  start();
  auto running = submit(request(numbers(10), 40));
  step(3);
  EXPECT_GT(engine_->stats().pages_in_use, 0);
  running->cancel();
  step();
  const Outcome got = outcome(*running);
  EXPECT_EQ(got.last->finish, FinishReason::kAbort);
  EXPECT_TRUE(got.last->status.ok());
  EXPECT_EQ(engine_->stats().pages_in_use, 0);
  EXPECT_EQ(engine_->stats().num_running, 0);
  EXPECT_EQ(engine_->stats().finished_total[static_cast<size_t>(FinishReason::kAbort)], 1);
}

TEST_F(EngineTest, DroppingAStreamCancelsEvenBeforeItRan) {
  start();
  submit(request(numbers(10), 40));
  EXPECT_EQ(engine_->stats().num_waiting, 1);
  step();
  EXPECT_EQ(engine_->stats().num_waiting, 0);
  EXPECT_EQ(engine_->stats().steps_total, 0);
  EXPECT_TRUE(engine_->loop().idle());
}

TEST_F(EngineTest, StoppingEndsOneSequenceAsFinished) {
  start();
  Request asked = request(numbers(3), 20);
  asked.num_sequences = 2;
  auto stream = submit(asked);
  step(3);
  stream->stop(1);
  stream->stop(99);
  finish_all();
  bool stopped = false;
  for (const Event& event : stream->take()) {
    if (!event.finish) continue;
    EXPECT_EQ(*event.finish, event.sequence == 1 ? FinishReason::kStop : FinishReason::kLength);
    stopped |= event.sequence == 1 && !event.stop_token;
  }
  EXPECT_TRUE(stopped);
}

TEST_F(EngineTest, ADeadlineEndsARequestWithAnError) {
  start();
  Request asked = request(numbers(3), 50);
  asked.deadline = now_ + std::chrono::seconds(5);
  auto stream = submit(asked);
  step(20);
  const Outcome got = outcome(*stream);
  EXPECT_EQ(got.last->finish, FinishReason::kError);
  EXPECT_TRUE(absl::IsDeadlineExceeded(got.last->status));
  EXPECT_EQ(got.tokens.size(), 5u);
  EXPECT_TRUE(engine_->loop().idle());
}

TEST_F(EngineTest, AFullQueueRefusesAndCountsSequences) {
  config_.max_num_queued_reqs = 4;
  config_.max_num_seqs = 1;
  start();
  Request asked = request(numbers(3), 4);
  asked.num_sequences = 3;
  auto accepted = submit(asked);
  const auto refused = engine_->submit(asked);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_EQ(engine_->stats().rejected_queue_full_total, 1);
  EXPECT_EQ(engine_->stats().num_waiting, 3);
  step();
  EXPECT_EQ(engine_->stats().num_waiting, 2) << "one has started";
  asked.num_sequences = 2;
  EXPECT_TRUE(engine_->submit(asked).ok());
  finish_all();
  EXPECT_EQ(outcome(*accepted).last->finish, FinishReason::kLength);
}

TEST_F(EngineTest, DrainingTakesNothingNewAndFinishesWhatRuns) {
  start();
  const Request asked = request(numbers(3), 6);
  auto stream = submit(asked);
  engine_->drain();
  engine_->drain();
  EXPECT_TRUE(absl::IsUnavailable(engine_->submit(asked).status()));
  finish_all();
  EXPECT_EQ(outcome(*stream).tokens, alone(asked));
}

TEST_F(EngineTest, AFailedStepEndsEverythingWithAnErrorForGood) {
  for (const bool throws : {false, true}) {
    int32_t num_steps = 0;
    model_.before_step = [&]() -> absl::Status {
      if (++num_steps <= 3) return absl::OkStatus();
      if (throws) throw std::runtime_error("device lost");
      return absl::DataLossError("device lost");
    };
    config_.max_num_seqs = 1;
    start();
    auto running = submit(request(numbers(3), 20));
    auto waiting = submit(request(numbers(3), 20));
    finish_all();
    for (Stream* stream : {running.get(), waiting.get()}) {
      const Outcome got = outcome(*stream);
      EXPECT_EQ(got.last->finish, FinishReason::kError);
      EXPECT_TRUE(absl::IsInternal(got.last->status));
      EXPECT_THAT(std::string(got.last->status.message()), HasSubstr("device lost"));
    }
    EXPECT_FALSE(engine_->stats().healthy);
    EXPECT_EQ(engine_->stats().pages_in_use, 0);
    EXPECT_EQ(engine_->stats().num_waiting, 0);
    EXPECT_TRUE(absl::IsUnavailable(engine_->submit(request(numbers(3))).status()));
  }
}

TEST_F(EngineTest, ABadRequestCostsNothing) {
  start();
  const auto refused = engine_->submit(request({}));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_EQ(engine_->stats().num_waiting, 0);
}

TEST_F(EngineTest, StepSizesAreCounted) {
  start();
  auto stream = submit(request(numbers(10), 3));
  finish_all();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.steps_total, 3);
  EXPECT_EQ(stats.step_tokens_sum, 12);
  EXPECT_EQ(stats.step_tokens[0], 2) << "two decodes of one token";
  EXPECT_EQ(stats.step_tokens[4], 1) << "ten tokens: more than 8, at most 16";
  EXPECT_EQ(stats.generation_tokens_total, 3);
}

TEST_F(EngineTest, ASeedOfTheEngineMakesUnseededRequestsReproducible) {
  const auto generate = [&] {
    start();
    std::vector<std::vector<int32_t>> texts;
    for (int32_t i = 0; i < 3; ++i) {
      Request asked = request(numbers(4));
      asked.sampling.seed.reset();
      auto stream = submit(asked);
      finish_all();
      texts.push_back(outcome(*stream).tokens);
    }
    return texts;
  };
  config_.seed = 1;
  const auto first = generate();
  EXPECT_EQ(generate(), first);
  EXPECT_NE(first[0], first[1]) << "each request has its own";
  config_.seed = 2;
  EXPECT_NE(generate(), first);
}

TEST_F(EngineTest, DestroyingTheEngineEndsWhatIsLeft) {
  start();
  auto stream = submit(request(numbers(3), 50));
  step(2);
  engine_.reset();
  EXPECT_EQ(outcome(*stream).last->finish, FinishReason::kAbort);
  stream->cancel();
  stream.reset();
}

}  // namespace
}  // namespace assay
