// The engine with its own thread, and many threads at its door. Meant to be run under ThreadSanitizer too.
#include <atomic>
#include <ctime>
#include <mutex>
#include <random>
#include <thread>

#include "engine/core/engine_impl.h"
#include "engine/core/seeds.h"
#include "gtest/gtest.h"
#include "tests/sim/fake_executor.h"

namespace assay {
namespace {

using namespace std::chrono_literals;
using test::FakeExecutor;
using test::FakeModelOptions;

std::unique_ptr<EngineImpl> make_engine(const FakeModelOptions& model, const EngineConfig& config) {
  return EngineImpl::create(config, std::make_unique<FakeExecutor>(model)).value();
}

Request make_request(uint64_t seed, int32_t max_tokens) {
  Request request;
  for (uint64_t i = 0; i < 3 + seed % 9; ++i) request.prompt.push_back(static_cast<int32_t>((seed / 3 + i) % 16));
  request.sampling.seed = seed;
  request.sampling.max_tokens = max_tokens;
  request.num_sequences = 1 + seed % 3;
  return request;
}

// Reads until every sequence has ended; counts how often each did.
std::vector<std::vector<Event>> read_all(Stream& stream, int32_t num_sequences) {
  std::vector<std::vector<Event>> events(num_sequences);
  for (int32_t num_ended = 0; num_ended < num_sequences;) {
    const std::vector<Event> batch = stream.wait(60s);
    if (batch.empty()) {
      ADD_FAILURE() << "nothing came for a minute";
      break;
    }
    for (const Event& event : batch) {
      events[event.sequence].push_back(event);
      num_ended += event.finish.has_value();
    }
  }
  return events;
}

TEST(EngineThreads, ManyThreadsSubmitReadStopCancelAndHangUp) {
  FakeModelOptions model;
  model.num_pages = 40;
  EngineConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 16;
  config.max_num_queued_reqs = 48;
  auto engine = make_engine(model, config);
  std::atomic<int64_t> num_right = 0, num_refused = 0;
  const auto client = [&](uint64_t number) {
    std::mt19937_64 random(number);
    for (int32_t round = 0; round < 30; ++round) {
      const Request request = make_request(random() % 1000, 12);
      auto stream = engine->submit(request);
      if (!stream.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(stream.status())) << stream.status();
        ++num_refused;
        std::this_thread::yield();
        continue;
      }
      const uint64_t choice = random() % 6;
      if (choice == 0) continue;  // hangs up at once
      if (choice == 1) (*stream)->cancel();
      if (choice == 2) (*stream)->stop(0);
      if (choice == 3) (*stream)->wait(1ms);
      if (choice == 3) continue;  // hangs up in the middle
      const auto events = read_all(**stream, request.num_sequences);
      if (choice <= 3) continue;
      for (int32_t index = 0; index < request.num_sequences; ++index) {
        std::vector<int32_t> tokens;
        for (const Event& event : events[index]) tokens.push_back(event.token.value_or(-1));
        const uint64_t seed = derived_seed(*request.sampling.seed, index);
        EXPECT_EQ(tokens, test::run_alone(model, request, seed, model.max_model_len).tokens);
        ++num_right;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 64; ++i) threads.emplace_back(client, i);
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done) {
      const EngineStats stats = engine->stats();
      EXPECT_LE(stats.num_running, 8);
      EXPECT_LE(stats.pages_in_use + stats.pages_cached, 40);
      std::this_thread::sleep_for(1ms);
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  watcher.join();
  EXPECT_GT(num_right, 100);
  for (int32_t i = 0; i < 6000 && engine->stats().num_running + engine->stats().num_waiting > 0; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.pages_in_use, 0);
  EXPECT_EQ(stats.rejected_queue_full_total, num_refused);
  EXPECT_TRUE(stats.healthy);
}

TEST(EngineThreads, ReadyCallbackTellsOfEveryEventAndIsGoneWhenReplaced) {
  auto engine = make_engine({}, {});
  for (uint64_t round = 0; round < 200; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    int32_t num_calls = 0;
    const Request request = make_request(round, 20);
    auto stream = engine->submit(request).value();
    stream->on_ready([&] {
      const std::lock_guard lock(mutex);
      ++num_calls;
      changed.notify_one();
    });
    for (int32_t num_ended = 0; num_ended < request.num_sequences;) {
      {
        std::unique_lock lock(mutex);
        ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return num_calls > 0; }));
        num_calls = 0;
      }
      for (const Event& event : stream->take()) num_ended += event.finish.has_value();
      if (round % 4 == 0) break;  // leaves in the middle: the callback's state dies with this scope
    }
    if (round % 2 == 0) stream->on_ready({});
    stream.reset();
  }
}

// Sleeping costs nothing: no poll, no spin.
TEST(EngineThreads, AnIdleEngineUsesNoProcessorTime) {
  auto engine = make_engine({}, {});
  auto stream = engine->submit(make_request(1, 4)).value();
  read_all(*stream, 2);
  std::this_thread::sleep_for(50ms);
  const auto processor_ms = [] { return std::clock() * 1000 / CLOCKS_PER_SEC; };
  const auto before = processor_ms();
  std::this_thread::sleep_for(1s);
  EXPECT_LE(processor_ms() - before, 20);
}

TEST(EngineThreads, DestroyingTheEngineEndsEveryStream) {
  for (uint64_t round = 0; round < 50; ++round) {
    FakeModelOptions model;
    model.before_step = [] {
      std::this_thread::sleep_for(100us);
      return absl::OkStatus();
    };
    auto engine = make_engine(model, {});
    std::vector<std::thread> readers;
    for (uint64_t i = 0; i < 4; ++i) {
      Request request = make_request(round * 4 + i, 50);
      std::unique_ptr<Stream> stream = engine->submit(request).value();
      readers.emplace_back([stream = std::move(stream), n = request.num_sequences] {
        for (const auto& events : read_all(*stream, n)) EXPECT_TRUE(events.back().finish);
      });
    }
    engine.reset();
    for (std::thread& reader : readers) reader.join();
  }
}

// Submitting races with the failure: every accepted request ends, every later one is refused.
TEST(EngineThreads, AFailureLosesNoRequest) {
  for (int32_t round = 0; round < 20; ++round) {
    std::atomic<int32_t> num_steps = 0;
    FakeModelOptions model;
    model.before_step = [&] { return ++num_steps > 20 ? absl::InternalError("device lost") : absl::OkStatus(); };
    auto engine = make_engine(model, {});
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        for (uint64_t j = 0;; ++j) {
          const Request request = make_request(i * 100 + j, 10);
          auto stream = engine->submit(request);
          if (!stream.ok()) {
            EXPECT_TRUE(absl::IsUnavailable(stream.status())) << stream.status();
            return;
          }
          read_all(**stream, request.num_sequences);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(engine->stats().healthy);
  }
}

}  // namespace
}  // namespace assay
