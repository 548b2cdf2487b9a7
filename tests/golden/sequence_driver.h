// Drives one sequence at a time through an Executor, as the engine would: pages by hand, chunks of any size.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/execute/executor.h"
#include "gtest/gtest.h"

namespace assay {

inline EngineConfig test_config(const std::string& model_dir, const std::string& kv_cache_dtype = "auto") {
  EngineConfig config;
  config.model_dir = model_dir;
  config.kv_cache_dtype = kv_cache_dtype;
  config.kv_pool = "exact";
  config.threads = 2;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 4096;
  config.max_model_len = 4096;
  config.kv_cache_memory_bytes = int64_t{1} << 30;
  return config;
}

inline std::unique_ptr<Executor> must_make(EngineConfig config) {
  auto executor = make_executor(config);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? *std::move(executor) : nullptr;
}

// Tokens, pages and rules of one sequence; makes slices of it.
struct TestSequence {
  std::vector<int32_t> tokens;
  int32_t num_prompt_tokens = 0;
  std::vector<int32_t> pages;
  SamplingParams sampling;
  uint64_t seed = 0;
  int64_t id;

  // `first_page`: the sequence uses pages from there on.
  TestSequence(std::vector<int32_t> prompt, int32_t first_page, int32_t max_tokens, int32_t block_size = 16)
      : tokens(std::move(prompt)), num_prompt_tokens(static_cast<int32_t>(tokens.size())), id(first_page) {
    pages.resize(static_cast<size_t>((max_tokens + block_size - 1) / block_size));
    std::iota(pages.begin(), pages.end(), first_page);
    sampling.temperature = 0.0f;
  }

  SequenceSlice slice(int32_t first, int32_t count) const {
    SequenceSlice slice;
    slice.sequence_id = id;
    slice.tokens = tokens.data();
    slice.num_known_tokens = static_cast<int32_t>(tokens.size());
    slice.num_prompt_tokens = num_prompt_tokens;
    slice.first_position = first;
    slice.num_tokens = count;
    slice.pages = pages.data();
    slice.num_pages = static_cast<int32_t>(pages.size());
    slice.sampling = &sampling;
    slice.seed = seed;
    slice.sample = first + count == slice.num_known_tokens;
    slice.prompt_logprobs = sampling.prompt_logprobs >= 0;
    return slice;
  }
};

inline StepPlan plan_of(std::vector<SequenceSlice> slices) {
  StepPlan plan;
  for (const SequenceSlice& slice : slices) plan.num_tokens += slice.num_tokens;
  plan.slices = std::move(slices);
  return plan;
}

inline StepResult must_execute(Executor& executor, std::vector<SequenceSlice> slices) {
  auto result = executor.execute(plan_of(std::move(slices)));
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return {};
  for (const SliceResult& slice : result->slices) EXPECT_TRUE(slice.status.ok()) << slice.status.message();
  return *std::move(result);
}

// Prefills in chunks; the result holds all prompt logprobs and the sampled token.
inline SliceResult prefill(Executor& executor, const TestSequence& sequence, int32_t chunk) {
  SliceResult all;
  const int32_t total = static_cast<int32_t>(sequence.tokens.size());
  for (int32_t first = 0; first < total; first += chunk) {
    StepResult step = must_execute(executor, {sequence.slice(first, std::min(chunk, total - first))});
    if (step.slices.empty()) return all;
    SliceResult& slice = step.slices[0];
    std::move(slice.prompt_logprobs.begin(), slice.prompt_logprobs.end(), std::back_inserter(all.prompt_logprobs));
    all.sampled = slice.sampled;
    all.token = std::move(slice.token);
  }
  return all;
}

}  // namespace assay
