#include "kernels/cpu/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::map<int32_t, double> frequencies(const std::vector<float>& logits, SamplingRow rules, int draws = 20000) {
  std::map<int32_t, double> shares;
  for (int i = 0; i < draws; ++i) {
    rules.draw = static_cast<uint64_t>(i);
    shares[sample_row(logits, rules)] += 1.0 / draws;
  }
  return shares;
}

std::vector<float> log_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Uniform, IsPhilox) {
  // Known answer of Philox 4x32-10 with counter and key zero: first words 6627e8d5 e169c58d.
  EXPECT_EQ(uniform_random(0, 0), static_cast<double>(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
}

TEST(Uniform, IsUniformOverDrawsAndSeeds) {
  double sum = 0.0, over_seeds = 0.0;
  for (uint64_t i = 0; i < 20000; ++i) {
    sum += uniform_random(7, i);
    over_seeds += uniform_random(i, 3);
    ASSERT_LT(uniform_random(i, i), 1.0);
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
  EXPECT_NEAR(over_seeds / 20000, 0.5, 0.01);
}

TEST(Sample, GreedyTakesTheLowestIdOfTies) {
  const std::vector<float> logits = {1.0f, 3.0f, 3.0f, 2.0f};
  SamplingRow rules;
  rules.temperature = 0.0f;
  EXPECT_EQ(sample_row(logits, rules), 1);
}

TEST(Sample, FollowsTheDistribution) {
  const auto shares = frequencies(log_of({0.5, 0.3, 0.15, 0.05}), {});
  EXPECT_NEAR(shares.at(0), 0.5, 0.02);
  EXPECT_NEAR(shares.at(1), 0.3, 0.02);
  EXPECT_NEAR(shares.at(2), 0.15, 0.02);
  EXPECT_NEAR(shares.at(3), 0.05, 0.01);
}

TEST(Sample, TemperatureSharpens) {
  SamplingRow rules;
  rules.temperature = 0.5f;  // squares the probabilities
  const auto shares = frequencies(log_of({0.6, 0.3, 0.1}), rules);
  EXPECT_NEAR(shares.at(0), 0.36 / 0.46, 0.02);
}

TEST(Sample, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits = {-1e30f, 80.0f, 80.5f, -3e38f};
  SamplingRow rules;
  for (float temperature : {1e-6f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
    rules.temperature = temperature;
    for (float top_p : {1.0f, 0.9f}) {
      rules.top_p = top_p;
      EXPECT_EQ(sample_row(logits, rules), 2) << temperature;
    }
  }
  rules = {};
  rules.temperature = 1e30f;
  EXPECT_GT(frequencies({0.0f, 5.0f, 1.0f}, rules).at(0), 0.3);
}

TEST(Sample, TopKKeepsTheBest) {
  SamplingRow rules;
  rules.top_k = 2;
  const auto shares = frequencies(log_of({0.1, 0.4, 0.3, 0.2}), rules);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(1), 4.0 / 7, 0.02);
  rules.top_k = 1;
  EXPECT_EQ(frequencies({2.0f, 2.0f, 1.0f}, rules).size(), 1u);
  EXPECT_EQ(sample_row(std::vector<float>{2.0f, 2.0f, 1.0f}, rules), 0);
}

TEST(Sample, TopPKeepsTheShortestPrefixThatReachesIt) {
  SamplingRow rules;
  rules.top_p = 0.75f;
  const auto shares = frequencies(log_of({0.5, 0.3, 0.15, 0.05}), rules);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(0), 0.5 / 0.8, 0.02);
  rules.top_p = 1e-9f;
  EXPECT_EQ(frequencies(log_of({0.2, 0.5, 0.3}), rules).size(), 1u);
}

TEST(Sample, TopPOverAWideVocabularyMatchesAFullSort) {
  std::vector<double> probabilities(5000);
  for (size_t i = 0; i < probabilities.size(); ++i)
    probabilities[i] = 1.0 + static_cast<double>(i * 7919 % 5000) / 5000;
  SamplingRow rules;
  rules.top_p = 0.5f;
  double total = 0.0, mass = 0.0;
  for (double p : probabilities) total += p;
  std::vector<double> sorted = probabilities;
  std::sort(sorted.rbegin(), sorted.rend());
  double least = 0.0;
  for (double p : sorted) {
    mass += p;
    least = p;
    if (mass >= 0.5 * total) break;
  }
  for (const auto& [id, share] : frequencies(log_of(probabilities), rules, 3000)) {
    EXPECT_GE(probabilities[static_cast<size_t>(id)], least - 1e-3);
  }
}

TEST(Sample, MinPIsRelativeToTheLargest) {
  SamplingRow rules;
  rules.min_p = 0.5f;
  const auto shares = frequencies(log_of({0.4, 0.3, 0.19, 0.11}), rules);
  EXPECT_EQ(shares.size(), 2u);
}

TEST(Sample, BiasForcesAndForbids) {
  SamplingRow rules;
  rules.temperature = 0.0f;
  const std::vector<std::pair<int32_t, float>> bias = {{2, 100.0f}};
  rules.logit_bias = bias;
  EXPECT_EQ(sample_row(std::vector<float>{5.0f, 1.0f, -3.0f}, rules), 2);
  const std::vector<int32_t> forbidden = {2, 0};
  rules.forbidden = forbidden;
  EXPECT_EQ(sample_row(std::vector<float>{5.0f, 1.0f, -3.0f}, rules), 1);
  const std::vector<int32_t> all = {0, 1, 2};
  rules.forbidden = all;
  EXPECT_EQ(sample_row(std::vector<float>{5.0f, 1.0f, -3.0f}, rules), kNoToken);
}

TEST(Sample, Penalties) {
  const std::vector<int32_t> prompt = {0}, output = {1, 1};
  SamplingRow rules;
  rules.temperature = 0.0f;
  rules.prompt = prompt;
  rules.output = output;
  rules.repetition_penalty = 2.0f;  // prompt and output: 4 -> 2, -1 -> -2
  EXPECT_EQ(sample_row(std::vector<float>{4.0f, 3.0f, 2.1f}, rules), 2);
  EXPECT_EQ(sample_row(std::vector<float>{-1.0f, -1.0f, -1.9f}, rules), 2);
  rules.repetition_penalty = 1.0f;
  rules.presence_penalty = 1.0f;  // output only, once
  EXPECT_EQ(sample_row(std::vector<float>{2.0f, 2.5f, 0.0f}, rules), 0);
  EXPECT_EQ(sample_row(std::vector<float>{1.0f, 2.5f, 0.0f}, rules), 1);
  rules.presence_penalty = 0.0f;
  rules.frequency_penalty = 1.0f;  // output only, per occurrence
  EXPECT_EQ(sample_row(std::vector<float>{1.0f, 2.5f, 0.0f}, rules), 0);
}

TEST(Sample, RefusesWhatIsNotFinite) {
  for (float bad : {kNan, kInf, -kInf}) {
    for (float temperature : {0.0f, 1.0f}) {
      SamplingRow rules;
      rules.temperature = temperature;
      EXPECT_EQ(sample_row(std::vector<float>{1.0f, bad, 2.0f}, rules), kNoToken);
    }
  }
}

TEST(Logprobs, SortedRankedAndNormalised) {
  const std::vector<float> logits = log_of({0.2, 0.4, 0.2, 0.1, 0.1});
  LogprobsRow row;
  row.token = 2;
  row.num_top = 4;
  fill_logprobs(logits, row);
  ASSERT_TRUE(row.finite);
  EXPECT_NEAR(row.logprob, std::log(0.2), 1e-6);
  EXPECT_EQ(row.rank, 3);  // behind 1, and behind 0 by its id
  std::vector<int32_t> ids;
  for (const auto& [id, logprob] : row.top) ids.push_back(id);
  EXPECT_THAT(ids, testing::ElementsAre(1, 0, 2, 3));
  EXPECT_NEAR(row.top[0].second, std::log(0.4), 1e-6);
}

TEST(Logprobs, HugeLogitsAndTooManyTop) {
  LogprobsRow row;
  row.token = 0;
  row.num_top = 50;
  fill_logprobs(std::vector<float>{3e38f, -3e38f}, row);
  ASSERT_TRUE(row.finite);
  EXPECT_EQ(row.logprob, 0.0f);
  EXPECT_EQ(row.top.size(), 2u);
  fill_logprobs(std::vector<float>{1.0f, kNan}, row);
  EXPECT_FALSE(row.finite);
}

}  // namespace
}  // namespace assay
