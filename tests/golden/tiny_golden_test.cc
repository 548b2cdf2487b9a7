// The bundled model against its golden.json: the eight largest logits at some positions, and 24 greedy tokens per
// prompt.
#include <cmath>
#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/golden/sequence_driver.h"

namespace assay {
namespace {

using nlohmann::json;

class TinyGolden : public testing::TestWithParam<const char*> {
 protected:
  TinyGolden() {
    const std::string folder = std::string(ASSAY_TEST_DATA) + "/models/tiny";
    std::ifstream(folder + "/golden.json") >> golden_;
    executor_ = must_make(test_config(folder, GetParam()));
  }
  double tolerance() const { return std::string(GetParam()) == "float32" ? 1e-3 : 5e-2; }
  json golden_;
  std::unique_ptr<Executor> executor_;
};

// Differences of logits equal differences of log probabilities, so the largest serves as the origin.
TEST_P(TinyGolden, TopLogits) {
  ASSERT_NE(executor_, nullptr);
  for (const json& prompt : golden_["prompts"]) {
    TestSequence sequence(prompt["ids"].get<std::vector<int32_t>>(), 0, 8192);
    sequence.sampling.prompt_logprobs = sequence.sampling.logprobs = executor_->model().vocab_size;
    const SliceResult result = prefill(*executor_, sequence, 512);
    for (size_t i = 0; i < prompt["positions"].size(); ++i) {
      const size_t position = prompt["positions"][i].get<size_t>();
      const TokenLogprobs& ours =
          position + 1 == sequence.tokens.size() ? result.token : result.prompt_logprobs.at(position);
      std::vector<double> logprob(ours.top.size());
      for (const auto& [id, value] : ours.top) logprob[static_cast<size_t>(id)] = value;
      const json& top = prompt["top8"][i];
      for (const json& entry : top) {
        const double expected = entry[1].get<double>() - top[0][1].get<double>();
        const double got = logprob[entry[0].get<size_t>()] - logprob[top[0][0].get<size_t>()];
        EXPECT_NEAR(got, expected, tolerance()) << prompt["kind"] << " position " << position;
      }
    }
  }
}

TEST_P(TinyGolden, GreedyTokens) {
  ASSERT_NE(executor_, nullptr);
  for (const json& prompt : golden_["prompts"]) {
    TestSequence sequence(prompt["ids"].get<std::vector<int32_t>>(), 0, 8192);
    int32_t next = prefill(*executor_, sequence, 512).token.token;
    for (size_t step = 0; step < prompt["greedy"].size(); ++step) {
      const int32_t expected = prompt["greedy"][step].get<int32_t>();
      if (prompt["greedy_margins"][step].get<double>() > tolerance()) {
        EXPECT_EQ(next, expected) << prompt["kind"] << " step " << step;
      }
      sequence.tokens.push_back(expected);
      const int32_t last = static_cast<int32_t>(sequence.tokens.size()) - 1;
      next = must_execute(*executor_, {sequence.slice(last, 1)}).slices.at(0).token.token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KvDtype, TinyGolden, testing::Values("float32", "bfloat16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace assay
