// What happens to requests: preemption, order, endings, refusals, failures.
#include <stdexcept>

#include "tests/unit/engine/engine_fixture.h"

namespace assay {
namespace {

using test::EngineTest;
using testing::HasSubstr;

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

TEST_F(EngineTest, AbortingAllEndsWhatRunsAndWhatWaits) {
  config_.max_num_seqs = 1;
  start();
  auto running = submit(request(numbers(3), 50));
  auto waiting = submit(request(numbers(3), 50));
  step(2);
  auto unseen = submit(request(numbers(3), 50));  // still in the inbox
  engine_->abort_all();
  step();
  for (Stream* stream : {running.get(), waiting.get(), unseen.get()}) {
    const Outcome got = outcome(*stream);
    ASSERT_TRUE(got.last);
    EXPECT_EQ(got.last->finish, FinishReason::kAbort);
  }
  EXPECT_TRUE(engine_->loop().idle());
  EXPECT_EQ(engine_->stats().pages_in_use, 0);
  EXPECT_EQ(engine_->stats().num_waiting, 0);
  auto later = submit(request(numbers(3), 4));  // it refuses nothing; drain does
  finish_all();
  EXPECT_EQ(outcome(*later).last->finish, FinishReason::kLength);
}

TEST_F(EngineTest, ASliceThatFailsEndsItsSequenceAlone) {
  const int32_t bad_seed = 13;
  model_.slice_status = [&](const SequenceSlice& slice) {
    const bool bad = slice.sampling->seed == uint64_t{bad_seed} && slice.num_known_tokens == 6;
    return bad ? absl::InternalError("a logit is not finite") : absl::OkStatus();
  };
  start();
  Request bad = request(numbers(3), 8);
  bad.sampling.seed = bad_seed;
  const Request good = request(numbers(4), 8);
  auto failing = submit(bad);
  auto sound = submit(good);
  finish_all();
  const Outcome failed = outcome(*failing);
  EXPECT_EQ(failed.tokens.size(), 3u);  // 3 + 3 known tokens: the fourth could not be sampled
  EXPECT_EQ(failed.last->finish, FinishReason::kError);
  EXPECT_THAT(std::string(failed.last->status.message()), HasSubstr("a logit is not finite"));
  const Outcome finished = outcome(*sound);
  EXPECT_EQ(finished.tokens, alone(good));
  EXPECT_EQ(finished.last->finish, FinishReason::kLength);
  EXPECT_TRUE(engine_->stats().healthy);
  EXPECT_EQ(engine_->stats().pages_in_use, 0);
  auto later = submit(good);
  finish_all();
  EXPECT_EQ(outcome(*later).tokens, alone(good));
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
