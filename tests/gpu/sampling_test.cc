// Choosing and scoring tokens on the GPU: the CPU's answers for the same rows, rules and seeds.
#include "kernels/cpu/sampling.h"

#include <limits>
#include <map>

#include "tests/gpu/gpu_memory.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

struct Rules {
  const char* name;
  SamplingRow row;
};

SamplingRow rules(float temperature, int32_t top_k, float top_p, float min_p) {
  SamplingRow row;
  row.temperature = temperature;
  row.top_k = top_k;
  row.top_p = top_p;
  row.min_p = min_p;
  return row;
}

const std::vector<Rules>& all_rules() {
  static const std::vector<std::pair<int32_t, float>> bias = {{3, 5.0f}, {7, -100.0f}, {11, 2.5f}};
  static const std::vector<int32_t> prompt = {1, 2, 3, 3, 9}, output = {4, 4, 5, 9}, forbidden = {0, 6};
  static const std::vector<Rules> list = [] {
    std::vector<Rules> r = {{"greedy", rules(0, 0, 1, 0)},
                            {"plain", rules(1, 0, 1, 0)},
                            {"hot", rules(5, 0, 1, 0)},
                            {"top_k", rules(1, 40, 1, 0)},
                            {"top_k_one", rules(1, 1, 1, 0)},
                            {"top_k_all", rules(1.5, 1 << 20, 1, 0)},
                            {"top_p", rules(0.8f, 0, 0.9f, 0)},
                            {"top_p_wide", rules(3, 0, 0.999f, 0)},
                            {"top_p_narrow", rules(1, 0, 1e-6f, 0)},
                            {"min_p", rules(1, 0, 1, 0.05f)},
                            {"all", rules(1.2f, 200, 0.95f, 0.01f)}};
    for (size_t i = 0; i < 11; i += 5) {
      Rules changed = r[i];
      changed.name = i == 0 ? "greedy_edited" : i == 5 ? "top_k_all_edited" : "all_edited";
      changed.row.repetition_penalty = 1.3f;
      changed.row.presence_penalty = 0.5f;
      changed.row.frequency_penalty = 0.25f;
      changed.row.logit_bias = bias;
      changed.row.prompt = prompt;
      changed.row.output = output;
      changed.row.forbidden = forbidden;
      r.push_back(changed);
    }
    return r;
  }();
  return list;
}

// The GPU may differ only where the random number falls on a boundary: hardly ever.
TEST(GpuSample, TheCpusChoices) {
  for (int64_t vocabulary : {7, 1000, 6144, 128256}) {
    const size_t count = 16;
    std::vector<float> logits = random_floats(count * static_cast<size_t>(vocabulary), 5, 3.0f);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // ties
    GpuMatrix on_gpu(static_cast<int64_t>(count), vocabulary, DType::kF32, logits);
    for (const Rules& r : all_rules()) {
      if (vocabulary < 12 && !r.row.logit_bias.empty()) continue;
      int different = 0, draws = 0;
      for (uint64_t draw = 0; draw < (vocabulary > 10000 ? 4 : 32); ++draw) {
        std::vector<SamplingRow> rows(count, r.row);
        for (size_t i = 0; i < count; ++i) rows[i].seed = 77 + i, rows[i].draw = draw;
        std::vector<int32_t> tokens(count, -5);
        gpu_ops(DType::kBF16).sample(on_gpu.view(), rows, tokens.data());
        for (size_t i = 0; i < count; ++i) {
          const float* row = logits.data() + i * static_cast<size_t>(vocabulary);
          ++draws;
          different += tokens[i] != sample_row({row, static_cast<size_t>(vocabulary)}, rows[i]);
        }
      }
      EXPECT_LE(different, draws / 200) << r.name << " of " << vocabulary << ", " << draws << " draws";
      if (r.row.temperature == 0.0f) {
        EXPECT_EQ(different, 0) << r.name;
      }
    }
  }
}

TEST(GpuSample, FrequenciesFollowTheWeights) {
  std::vector<float> logits;
  const size_t count = 256;
  for (size_t i = 0; i < count; ++i) logits.insert(logits.end(), {0.0f, 1.0f, 2.0f, -40.0f, 1.0f});
  GpuMatrix on_gpu(count, 5, DType::kF32, logits);
  std::map<int32_t, int> seen;
  for (uint64_t draw = 0; draw < 40; ++draw) {
    std::vector<SamplingRow> rows(count, rules(1, 0, 1, 0));
    for (size_t i = 0; i < count; ++i) rows[i].seed = i, rows[i].draw = draw;
    std::vector<int32_t> tokens(count);
    gpu_ops(DType::kBF16).sample(on_gpu.view(), rows, tokens.data());
    for (int32_t token : tokens) ++seen[token];
  }
  const double total = 1 + 2 * std::exp(1.0) + std::exp(2.0), draws = 40.0 * count;
  EXPECT_NEAR(seen[0] / draws, 1 / total, 0.01);
  EXPECT_NEAR(seen[1] / draws, std::exp(1.0) / total, 0.015);
  EXPECT_NEAR(seen[2] / draws, std::exp(2.0) / total, 0.015);
  EXPECT_EQ(seen[3], 0);
}

TEST(GpuSample, RowsThatCannotBeSampled) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits = {1, 2, nan, 0, inf, 2, 3, 0, 1, -inf, 3, 0, 1, 2, 3, 0, 5, 2, 3, 5};
  GpuMatrix on_gpu(5, 4, DType::kF32, logits);
  const std::vector<int32_t> all = {0, 1, 2, 3};
  std::vector<SamplingRow> rows(5, rules(0, 0, 1, 0));
  rows[3].forbidden = all;
  std::vector<int32_t> tokens(5);
  gpu_ops(DType::kBF16).sample(on_gpu.view(), rows, tokens.data());
  EXPECT_EQ(tokens, (std::vector<int32_t>{kNoToken, kNoToken, kNoToken, kNoToken, 0}));
}

TEST(GpuLogprobs, TheCpusScores) {
  for (int64_t vocabulary : {5, 6144, 128256}) {
    const size_t count = 6;
    std::vector<float> logits = random_floats(count * static_cast<size_t>(vocabulary), 5, 4.0f);
    for (size_t i = 0; i < logits.size(); i += 2) logits[i] = std::round(logits[i]);
    logits[4 * static_cast<size_t>(vocabulary) + 1] = std::numeric_limits<float>::quiet_NaN();
    GpuMatrix on_gpu(static_cast<int64_t>(count), vocabulary, DType::kF32, logits);
    std::vector<LogprobsRow> got(count), expected(count);
    for (size_t i = 0; i < count; ++i) {
      got[i].token = expected[i].token = static_cast<int32_t>((i * 7919 + 2) % static_cast<size_t>(vocabulary));
      got[i].num_top = expected[i].num_top = i == 1 ? -1 : static_cast<int32_t>(i * 4);
      fill_logprobs({logits.data() + i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary)},
                    expected[i]);
    }
    gpu_ops(DType::kBF16).logprobs(on_gpu.view(), got);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(got[i].finite, expected[i].finite) << i;
      EXPECT_EQ(got[i].rank, expected[i].rank) << i;
      EXPECT_NEAR(got[i].logprob, expected[i].logprob, 1e-5) << i;
      ASSERT_EQ(got[i].top.size(), expected[i].top.size()) << i;
      for (size_t n = 0; n < got[i].top.size(); ++n) {
        EXPECT_EQ(got[i].top[n].first, expected[i].top[n].first) << i << " " << n;
        EXPECT_NEAR(got[i].top[n].second, expected[i].top[n].second, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace assay
