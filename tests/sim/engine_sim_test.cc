// Scheduler, cache and engine loop in simulation: thousands of random workloads, one per seed, every invariant after
// every step. To run one seed again: ASSAY_SIM_SEED=n.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/sim/workload.h"

namespace assay::test {
namespace {

constexpr int64_t kSteps = 1'000'000;
constexpr int32_t kStepsPerWorkload = 300;

TEST(EngineSimulation, AMillionStepsKeepEveryInvariant) {
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
  EXPECT_GT(counts.preemptions, 10'000);
  EXPECT_GT(counts.prefix_hit_tokens, 100'000);
  EXPECT_GT(counts.refused_full, 1'000);
  EXPECT_GT(counts.cancelled, 1'000);
  EXPECT_GT(counts.stopped, 1'000);
  EXPECT_GT(counts.overdue, 1'000);
  EXPECT_GT(counts.by_stop_id, 10'000);
  EXPECT_GT(counts.by_length, 10'000);
  EXPECT_GT(counts.prompt_scored, 1'000);
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
