#include "engine/core/stop_rules.h"

#include <set>

#include "engine/core/seeds.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

const std::vector<int32_t> kEos{2, 3};

TEST(StopRules, AnyEndOfSequenceIdStops) {
  const SamplingParams sampling;
  for (const int32_t token : kEos) {
    const auto stop = stop_after(token, 1, sampling, kEos);
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->reason, FinishReason::kStop);
    EXPECT_EQ(stop->stop_token, token);
  }
  EXPECT_FALSE(stop_after(4, 1, sampling, kEos));
}

TEST(StopRules, IgnoreEosKeepsExplicitStopIds) {
  SamplingParams sampling;
  sampling.ignore_eos = true;
  EXPECT_FALSE(stop_after(2, 1, sampling, kEos));
  sampling.stop_token_ids = {2, 9};
  EXPECT_EQ(stop_after(2, 1, sampling, kEos)->stop_token, 2);
  EXPECT_EQ(stop_after(9, 1, sampling, kEos)->stop_token, 9);
  EXPECT_FALSE(stop_after(3, 1, sampling, kEos));
}

TEST(StopRules, LengthEndsAfterMaxTokens) {
  SamplingParams sampling;
  sampling.max_tokens = 3;
  EXPECT_FALSE(stop_after(5, 2, sampling, kEos));
  const auto stop = stop_after(5, 3, sampling, kEos);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, FinishReason::kLength);
  EXPECT_FALSE(stop->stop_token);
  EXPECT_EQ(stop_after(2, 3, sampling, kEos)->reason, FinishReason::kStop) << "a stop id wins over the length";
}

TEST(StopRules, StopIdsAreForbiddenBeforeMinTokens) {
  SamplingParams sampling;
  sampling.min_tokens = 2;
  EXPECT_TRUE(forbids_stop(sampling, 0));
  EXPECT_TRUE(forbids_stop(sampling, 1));
  EXPECT_FALSE(forbids_stop(sampling, 2));
  EXPECT_FALSE(stop_after(2, 2, sampling, kEos)) << "the second token was sampled with stop ids forbidden";
  EXPECT_TRUE(stop_after(2, 3, sampling, kEos));
}

TEST(Seeds, SequencesAndRequestsGetDifferentOnes) {
  std::set<uint64_t> seeds;
  for (uint64_t request = 0; request < 100; ++request) {
    for (uint64_t index = 0; index < 100; ++index) seeds.insert(derived_seed(request, index));
  }
  EXPECT_EQ(seeds.size(), 10'000u);
}

// First values of SplitMix64 from state 0.
TEST(Seeds, MixIsSplitMix64) {
  EXPECT_EQ(mix_seed(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(mix_seed(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

}  // namespace
}  // namespace assay
