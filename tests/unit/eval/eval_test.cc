// Parts of `assay eval` and `assay calibrate` that need no model.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/calibrate/calibrate.h"
#include "server/eval/needle_text.h"
#include "server/eval/report.h"
#include "server/eval/statistics.h"
#include "server/eval/tool_arguments.h"

namespace assay {
namespace {

using testing::HasSubstr;

int64_t words(const std::string& text) {
  return 1 + std::count_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; });
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(NeedlePrompt, HoldsItsAnswerOnceAndFits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto prompt = make_needle_prompt(seed, 1000, 0.5, words);
    ASSERT_TRUE(prompt.ok());
    EXPECT_EQ(occurrences(prompt->text, prompt->answer), 1u);
    EXPECT_LE(words(prompt->text), 1000);
    EXPECT_GT(words(prompt->text), 960);
    const std::string name = prompt->text.substr(prompt->text.rfind("for the ") + 8);
    EXPECT_EQ(occurrences(prompt->text, name.substr(0, name.size() - 1)), 2u);  // the fact and the question
  }
}

TEST(NeedlePrompt, PutsTheFactWhereItIsAskedFor) {
  for (double depth : {0.05, 0.5, 0.95}) {
    const auto prompt = make_needle_prompt(7, 2000, depth, words);
    ASSERT_TRUE(prompt.ok());
    const double at = static_cast<double>(prompt->text.find(prompt->answer)) / static_cast<double>(prompt->text.size());
    EXPECT_NEAR(at, depth, 0.04);
  }
}

TEST(NeedlePrompt, IsTheSameForTheSameSeedOnly) {
  const auto a = make_needle_prompt(1, 300, 0.3, words), b = make_needle_prompt(1, 300, 0.3, words);
  const auto c = make_needle_prompt(2, 300, 0.3, words);
  EXPECT_EQ(a->text, b->text);
  EXPECT_NE(a->text, c->text);
  EXPECT_FALSE(make_needle_prompt(1, 5, 0.3, words).ok());
}

TEST(Share, HasWilsonsInterval) {
  const Share half{50, 100}, none{0, 10}, all{10, 10};
  EXPECT_NEAR(half.low(), 0.40383, 1e-5);
  EXPECT_NEAR(half.high(), 0.59617, 1e-5);
  EXPECT_DOUBLE_EQ(none.low(), 0);
  EXPECT_NEAR(none.high(), 0.27753, 1e-5);
  EXPECT_NEAR(all.low(), 0.72247, 1e-5);
  EXPECT_DOUBLE_EQ(all.high(), 1);
  EXPECT_TRUE(std::isnan(Share().value()));
}

TEST(Quantile, TakesTheNearestElement) {
  EXPECT_EQ(quantile({1, 2, 3}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2, 3}, 1.0), 3);
  EXPECT_EQ(quantile({1, 2, 3}, 0.2), 1);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

class Arguments : public testing::Test {
 protected:
  Arguments() : folder_(testing::TempDir() + "eval_arguments") {
    std::system(("mkdir -p " + folder_).c_str());
    std::ofstream(folder_ + "/config.json") << "{}";
  }
  absl::StatusOr<ToolArguments> parse(std::vector<std::string> arguments) {
    return parse_tool_arguments(arguments, {{"count", "N", "how many", "3"}, {"fast", "", "hurry"}});
  }
  std::string folder_;
};

TEST_F(Arguments, OwnFlagsAndThoseOfServe) {
  const auto parsed = parse({"what", "--model", folder_, "--count=5", "--fast", "--kv-tau", "0.1"});
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->positional, std::vector<std::string>{"what"});
  EXPECT_EQ(*parsed->number("count", 1, 9), 5);
  EXPECT_TRUE(parsed->on("fast"));
  EXPECT_EQ(parsed->config.kv_tau, 0.1);
  EXPECT_EQ(*parse({"--model", folder_})->number("count", 1, 9), 3);
  EXPECT_FALSE(parse({"--model", folder_})->on("fast"));
}

TEST_F(Arguments, WhatIsWrongIsNamed) {
  EXPECT_THAT(std::string(parse({"--model", folder_, "--count"}).status().message()),
              HasSubstr("--count needs a value"));
  EXPECT_THAT(std::string(parse({"--model", folder_, "--fast=1"}).status().message()),
              HasSubstr("--fast takes no value"));
  EXPECT_THAT(std::string(parse({"--model", folder_, "--cuont", "1"}).status().message()), HasSubstr("--cuont"));
  EXPECT_THAT(std::string(parse({}).status().message()), HasSubstr("--model"));
  const auto parsed = parse({"--model", folder_, "--count", "12"});
  EXPECT_THAT(std::string(parsed->number("count", 1, 9).status().message()),
              HasSubstr("--count must be a whole number from 1 to 9"));
}

TEST_F(Arguments, PoolsWithSettings) {
  ServeConfig config;
  config.kv_tau = 0.1;
  const auto pool = with_pool(config, "witcert@kv_outlier_pairs=4@kv-bound=e-form");
  ASSERT_TRUE(pool.ok()) << pool.status().message();
  EXPECT_EQ(pool->kv_pool, "witcert");
  EXPECT_EQ(pool->kv_outlier_pairs, 4);
  EXPECT_EQ(pool->kv_bound, "e-form");
  EXPECT_EQ(pool->kv_tau, 0.1);
  EXPECT_EQ(with_pool(config, "observed:kivi-2")->kv_pool, "observed:kivi-2");
  for (const char* wrong : {"certified@nonsense=1", "certified@kv_tau", "certified@kv_tau=high", "certified@"}) {
    EXPECT_THAT(std::string(with_pool(config, wrong).status().message()), HasSubstr("--kv-pool")) << wrong;
  }
  EXPECT_EQ(split_list("a,b,,c"), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(EvalReport, CountsCoverageFromTheReports) {
  NeedleResult result;
  result.pool.spec = "certified";
  result.pool.has_meter = true;
  result.pool.decode = {.metered = 100, .certified = 90, .conditional = 5, .risk_ranked = 5};
  result.pool.worst = std::numeric_limits<double>::infinity();
  result.pool.meters.bucket_edges = {0.1, 0.2};
  result.pool.meters.heads.resize(1);
  result.pool.meters.heads[0].cells[0].metered = 100;
  result.pool.meters.tv[0].counts = {70, 25, 5};
  result.contexts.push_back({512, {3, 4}, {4, 4}, result.pool.decode});
  const auto json = nlohmann::json::parse(needle_json({result}));
  const auto& decode = json[0]["decode"];
  EXPECT_EQ(decode["covered"]["hits"], 95);
  EXPECT_EQ(decode["covered"]["total"], 100);
  EXPECT_EQ(decode["bound_at_most"]["0.1"], 70);
  EXPECT_EQ(decode["bound_at_most"]["0.2"], 95);
  EXPECT_EQ(decode["worst_raw"], "inf");
  EXPECT_EQ(json[0]["contexts"][0]["right"]["hits"], 3);
  EXPECT_THAT(needle_table({result}), HasSubstr("0.9500"));
}

TEST(CalibrationReport, SaysCoverageQuantilesAndTheTauOfABudget) {
  Suggestion good{"certified", "", {}}, missing{"other", "not known", {}};
  good.scores.num_layers = 2;
  good.scores.num_heads = 5;
  for (int i = 1; i <= 1000; ++i) good.scores.raw.push_back(i / 1000.0);
  good.scores.raw.back() = std::numeric_limits<double>::infinity();
  good.scores.value = good.scores.raw;
  const auto json = nlohmann::json::parse(calibration_json_report({}, {good, missing}));
  const auto& pool = json["pools"][0];
  EXPECT_NEAR(pool["coverage"]["0.2"].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(pool["raw"]["0.5"].get<double>(), 0.5, 2e-3);
  EXPECT_EQ(pool["raw"]["1"], "inf");
  // Ten cells a token, one page a token: a tenth of the cells may be over tau.
  EXPECT_NEAR(pool["tau_of_pages_per_token"]["1"].get<double>(), 0.9, 2e-3);
  EXPECT_FALSE(pool["tau_of_pages_per_token"].contains("10"));
  EXPECT_EQ(json["pools"][1]["problem"], "not known");
  const std::string text = calibration_text_report({}, {good, missing});
  EXPECT_THAT(text, HasSubstr("not available: not known"));
  EXPECT_THAT(text, HasSubstr("any"));
}

}  // namespace
}  // namespace assay
