// Arrivals and prompts: seeded, with the statistics they promise.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "server/sweep/arrivals.h"
#include "server/sweep/prompts.h"
#include "server/sweep/statistics.h"

namespace assay::sweep {
namespace {

struct Gaps {
  double mean = 0.0, variation = 0.0;  // seconds; standard deviation / mean
};

Gaps gaps(const std::vector<double>& times) {
  const double n = static_cast<double>(times.size() - 1);
  double sum = 0.0, squares = 0.0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n) / (sum / n)};
}

TEST(Arrivals, MeanIsTheRateAndVariationIsTheBurstiness) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const Gaps g = gaps(plan_arrivals({50.0, burstiness, 40000, 0.0, 3}));
    EXPECT_NEAR(g.mean, 0.02, 0.02 * 0.03) << burstiness;
    EXPECT_NEAR(g.variation, 1.0 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness)) << burstiness;
  }
}

TEST(Arrivals, SeededAndLimited) {
  EXPECT_EQ(plan_arrivals({10, 1, 100, 0, 1}), plan_arrivals({10, 1, 100, 0, 1}));
  EXPECT_NE(plan_arrivals({10, 1, 100, 0, 1}), plan_arrivals({10, 1, 100, 0, 2}));
  EXPECT_EQ(plan_arrivals({10, 1, 100, 0, 1}).size(), 100u);
  const std::vector<double> times = plan_arrivals({10, 1, 0, 20, 1});
  EXPECT_EQ(times.front(), 0.0);
  EXPECT_LT(times.back(), 20.0);
  EXPECT_NEAR(static_cast<double>(times.size()), 200.0, 50.0);
}

TokenCosts unit_costs(double overhead) {
  TokenCosts costs;
  for (const std::string& word : candidate_words()) costs.words.push_back({word, 1.0});
  costs.overhead = overhead;
  return costs;
}

size_t count_words(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
}

TEST(Prompts, AreDistinctSeededAndOfTheLengthAskedFor) {
  PromptPlan plan;
  plan.seed = 5;
  plan.input_tokens = 64;
  plan.costs = unit_costs(4);
  const PromptSource source(plan), again(plan);
  std::set<std::string> prompts, starts;
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string prompt = source.prompt(i).prompt;
    EXPECT_EQ(count_words(prompt), 60u);
    EXPECT_EQ(prompt, again.prompt(i).prompt);
    prompts.insert(prompt);
    starts.insert(prompt.substr(0, 40));
  }
  EXPECT_EQ(prompts.size(), 500u);
  EXPECT_EQ(starts.size(), 500u);  // no common prefix that a cache could use
  plan.seed = 6;
  EXPECT_NE(PromptSource(plan).prompt(0).prompt, source.prompt(0).prompt);
}

TEST(Prompts, ShareExactlyTheAskedPrefix) {
  PromptPlan plan;
  plan.input_tokens = 100;
  plan.shared_prefix_tokens = 40;
  plan.costs = unit_costs(0);
  const PromptSource source(plan);
  const std::string a = source.prompt(0).prompt, b = source.prompt(1).prompt;
  const size_t common = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  EXPECT_GE(count_words(a.substr(0, common)), 40u);
  EXPECT_LE(count_words(a.substr(0, common)), 42u);  // two random words in a row may begin alike
  EXPECT_EQ(count_words(a), 100u);
}

TEST(Prompts, WordsOfSeveralCostsFillUpExactly) {
  TokenCosts costs;
  costs.words = {{"threeish", 3.0}, {"other", 3.0}, {"x", 1.0}};
  for (int tokens = 1; tokens < 40; ++tokens) {
    const std::string text = make_words(costs, tokens, 9);
    int sum = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == ' ') sum += text[at + 1] == 'x' ? 1 : 3;
    }
    EXPECT_EQ(sum, tokens);
  }
}

TEST(Prompts, GivenTextFollowsADistinctLine) {
  PromptPlan plan;
  plan.text = "the given text";
  plan.costs = unit_costs(0);
  const PromptSource source(plan);
  const std::string a = source.prompt(0).prompt, b = source.prompt(1).prompt;
  EXPECT_TRUE(a.ends_with("\nthe given text"));
  EXPECT_TRUE(b.ends_with("\nthe given text"));
  EXPECT_NE(a, b);
}

TEST(Dataset, LinesInOrderAndAround) {
  const auto dataset = parse_dataset(
      "{\"prompt\":\"a\",\"max_tokens\":5}\n\n{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}\r\n");
  ASSERT_TRUE(dataset.ok());
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ((*dataset)[0].prompt, "a");
  EXPECT_EQ((*dataset)[0].output_tokens, 5);
  EXPECT_EQ((*dataset)[1].messages_json, R"([{"content":"b","role":"user"}])");
  PromptPlan plan;
  plan.dataset = *dataset;
  EXPECT_EQ(PromptSource(plan).prompt(2).prompt, "a");
}

TEST(Dataset, SaysWhichLineIsWrong) {
  const auto message = [](const char* jsonl) { return std::string(parse_dataset(jsonl).status().message()); };
  EXPECT_EQ(message("{\"prompt\":\"a\"}\n{oops\n"), "dataset line 2: not a JSON object");
  EXPECT_EQ(message("{}"), "dataset line 1: needs either \"prompt\" or \"messages\"");
  EXPECT_EQ(message("{\"prompt\":1}"), "dataset line 1: \"prompt\" is not a string");
  EXPECT_EQ(message("{\"messages\":[]}"), "dataset line 1: \"messages\" is not a list of messages");
  EXPECT_EQ(message("{\"prompt\":\"a\",\"max_tokens\":0}"), "dataset line 1: \"max_tokens\" is not a positive integer");
  EXPECT_EQ(message("\n\n"), "dataset: no line with a prompt");
}

}  // namespace
}  // namespace assay::sweep
