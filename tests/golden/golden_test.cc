// The random golden models of every family against the field's reference implementation, through the Executor.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/golden/sequence_driver.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Case {
  std::string model;
  bool classic;  // config.classic.json instead of config.json
  std::string kv_cache_dtype;
  double tolerance;  // relative RMS of logits
};

// A copy of the model folder whose config.json is the wanted spelling; weights are links.
class ModelFolder {
 public:
  ModelFolder(const std::string& model, bool classic) {
    const fs::path from = fs::path(ASSAY_TEST_DATA) / "models" / model;
    path_ = fs::path(testing::TempDir()) /
            ("assay_" + model + (classic ? "_classic_" : "_new_") + std::to_string(getpid()));
    fs::create_directories(path_);
    for (const auto& entry : fs::directory_iterator(from)) {
      const std::string name = entry.path().filename();
      if (name == "config.json" || name == "config.classic.json") continue;
      fs::create_symlink(entry.path(), path_ / name);
    }
    fs::copy_file(from / (classic ? "config.classic.json" : "config.json"), path_ / "config.json");
  }
  ~ModelFolder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

std::vector<double> log_softmax(const std::vector<double>& logits) {
  double max = logits[0], sum = 0.0;
  for (double x : logits) max = std::max(max, x);
  for (double x : logits) sum += std::exp(x - max);
  std::vector<double> out;
  for (double x : logits) out.push_back(x - max - std::log(sum));
  return out;
}

double rms(const std::vector<double>& values) {
  double sum = 0.0;
  for (double x : values) sum += x * x;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// RMS difference of the log probabilities relative to the RMS of the golden logits.
double relative_error(const TokenLogprobs& ours, const std::vector<double>& golden_logits) {
  const std::vector<double> golden = log_softmax(golden_logits);
  EXPECT_EQ(ours.top.size(), golden.size());
  std::vector<double> difference(golden.size());
  for (const auto& [id, logprob] : ours.top)
    difference[static_cast<size_t>(id)] = logprob - golden[static_cast<size_t>(id)];
  return rms(difference) / rms(golden_logits);
}

class Golden : public testing::TestWithParam<Case> {
 protected:
  Golden() : folder_(GetParam().model, GetParam().classic) {
    std::ifstream(folder_.path() + "/golden.json") >> golden_;
    executor_ = must_make(test_config(folder_.path(), GetParam().kv_cache_dtype));
    ids_ = golden_["input_ids"].get<std::vector<int32_t>>();
  }
  ModelFolder folder_;
  json golden_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> ids_;
};

TEST_P(Golden, LogitsAndMeanNll) {
  ASSERT_NE(executor_, nullptr);
  TestSequence sequence(ids_, 0, 4096);
  sequence.sampling.prompt_logprobs = sequence.sampling.logprobs = executor_->model().vocab_size;
  const SliceResult result = prefill(*executor_, sequence, 4096);
  ASSERT_EQ(result.prompt_logprobs.size(), ids_.size() - 1);
  double nll = 0.0;
  for (const TokenLogprobs& scored : result.prompt_logprobs) nll -= scored.logprob;
  EXPECT_NEAR(nll / static_cast<double>(ids_.size() - 1), golden_["mean_nll"].get<double>(), GetParam().tolerance);
  for (size_t i = 0; i < golden_["positions"].size(); ++i) {
    const size_t position = golden_["positions"][i].get<size_t>();
    const bool last = position + 1 == ids_.size();
    const TokenLogprobs& ours = last ? result.token : result.prompt_logprobs[position];
    EXPECT_LE(relative_error(ours, golden_["logits"][i].get<std::vector<double>>()), GetParam().tolerance)
        << "position " << position;
  }
}

TEST_P(Golden, GreedyTeacherForcedDecode) {
  ASSERT_NE(executor_, nullptr);
  TestSequence sequence(ids_, 3, 4096);
  TokenLogprobs next = prefill(*executor_, sequence, 64).token;
  int checked = 0;
  for (const json& step : golden_["greedy"]) {
    const int32_t expected = step[0].get<int32_t>();
    if (step[1].get<double>() > 1e-2) {
      EXPECT_EQ(next.token, expected) << "step " << sequence.tokens.size() - ids_.size();
      ++checked;
    }
    sequence.tokens.push_back(expected);
    const int32_t last = static_cast<int32_t>(sequence.tokens.size()) - 1;
    next = must_execute(*executor_, {sequence.slice(last, 1)}).slices.at(0).token;
  }
  EXPECT_GE(checked, 20);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"llama_hd128", "llama_llama3rope", "llama_mha_plain", "llama_yarn_sharded",
                            "qwen2_hd64_group7", "qwen2_tied", "qwen3_headdim32"}) {
    for (bool classic : {false, true}) {
      all.push_back({model, classic, "float32", 1e-4});
      all.push_back({model, classic, "auto", 1e-2});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.model + (info.param.classic ? "_classic_" : "_new_") + info.param.kv_cache_dtype;
});

}  // namespace
}  // namespace assay
