#include "kernels/cpu/thread_pool.h"

#include <chrono>

#include "gtest/gtest.h"

namespace assay {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int64_t count : {0, 1, 2, 3, 100, 10000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      pool.parallel_for(count, [&](int64_t index, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        calls[static_cast<size_t>(index)].fetch_add(1);
      });
      for (const auto& call : calls) EXPECT_EQ(call.load(), 1);
    }
  }
}

// Writes of one loop are visible to the next, also over many short loops and after workers have gone to sleep.
TEST(ThreadPool, LoopsFollowEachOther) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(64, [&](int64_t index, int) {
      EXPECT_EQ(values[static_cast<size_t>(index)], round);
      ++values[static_cast<size_t>(index)];
    });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ThreadPool, IsGoneWhileWorkersSleepOrSpin) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3);
    if (round % 2 == 0) pool.parallel_for(8, [](int64_t, int) {});
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace
}  // namespace assay
