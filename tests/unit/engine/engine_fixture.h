// The engine stepped by hand, with a fake executor and a fake clock.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/engine_impl.h"
#include "engine/core/seeds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/fake_executor.h"

namespace assay::test {

class EngineTest : public ::testing::Test {
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
    return run_alone(model_, request, derived_seed(*request.sampling.seed, index), context).tokens;
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

}  // namespace assay::test
