// Scheduler, cache and engine loop in simulation: thousands of random workloads, one per seed, every invariant after
// every step. To run one seed again: ASSAY_SIM_SEED=n.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/workload.h"

namespace assay::test {
namespace {

// Sanitizers make a step many times dearer; a fifth of the steps still meets everything below.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kSteps = 200'000;
#else
constexpr int64_t kSteps = 1'000'000;
#endif
constexpr int32_t kStepsPerWorkload = 300;

TEST(EngineSimulation, ManyStepsKeepEveryInvariant) {
  WorkloadCounts counts;
  uint64_t seed = 0;
  if (const char* one = std::getenv("ASSAY_SIM_SEED")) {
    ASSERT_EQ(Workload(std::stoull(one)).run(kStepsPerWorkload, counts), "");
    return;
  }
  for (; counts.steps < kSteps; ++seed) {
    ASSERT_EQ(Workload(seed).run(kStepsPerWorkload, counts), "") << "seed " << seed;
  }
  std::printf(
      "%lld steps of %llu workloads: %lld requests, %lld sequences, %lld preemptions, %lld tokens from the prefix "
      "cache, %lld cache reads checked\n",
      static_cast<long long>(counts.steps), static_cast<unsigned long long>(seed),
      static_cast<long long>(counts.requests), static_cast<long long>(counts.sequences),
      static_cast<long long>(counts.preemptions), static_cast<long long>(counts.prefix_hit_tokens),
      static_cast<long long>(counts.positions_checked));
  // The workloads reach what they are there for.
  EXPECT_GT(counts.preemptions, kSteps / 100);
  EXPECT_GT(counts.prefix_hit_tokens, kSteps / 10);
  EXPECT_GT(counts.restored_tokens, kSteps / 100);
  EXPECT_GT(counts.refused_full, kSteps / 1000);
  EXPECT_GT(counts.cancelled, kSteps / 1000);
  EXPECT_GT(counts.stopped, kSteps / 1000);
  EXPECT_GT(counts.overdue, kSteps / 1000);
  EXPECT_GT(counts.by_stop_id, kSteps / 100);
  EXPECT_GT(counts.by_length, kSteps / 100);
  EXPECT_GT(counts.prompt_scored, kSteps / 1000);
}

// The same seed gives the same run, or a failure could not be looked at again.
TEST(EngineSimulation, IsReproducible) {
  WorkloadCounts first, second;
  EXPECT_EQ(Workload(7).run(kStepsPerWorkload, first), "");
  EXPECT_EQ(Workload(7).run(kStepsPerWorkload, second), "");
  EXPECT_EQ(first.steps, second.steps);
  EXPECT_EQ(first.preemptions, second.preemptions);
  EXPECT_EQ(first.prefix_hit_tokens, second.prefix_hit_tokens);
  EXPECT_EQ(first.positions_checked, second.positions_checked);
}

}  // namespace
}  // namespace assay::test
