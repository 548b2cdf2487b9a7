// Steps of a whole model with random weights on the GPU, through the executor that serves: decode and prefill.
//   gpu_step_bench MODEL_FOLDER POOL[,POOL...] CASE[,CASE...]     a case is BATCHxCONTEXT
// For each case: the sequences are prefilled in chunks of 8,192 tokens, then 20 decode steps are timed (host clock,
// each with its answer, median). Prints one JSON object a line. The KV cache gets 100 GB.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "engine/execute/executor.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int32_t kChunk = 8192, kSteps = 20;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Sequence {
  Sequence(int32_t length, int32_t vocabulary, int32_t number) {
    const int32_t room = length + kSteps + 16;
    for (int32_t i = 0; i < length; ++i) tokens.push_back((i * 7919 + number * 104729 + 17) % vocabulary);
    pages.resize(static_cast<size_t>(room / 16 + 1));
    std::iota(pages.begin(), pages.end(), number * static_cast<int32_t>(pages.size()));
    sampling.temperature = 0.0f;
  }
  SequenceSlice slice(int32_t first, int32_t count) const {
    SequenceSlice s;
    s.tokens = tokens.data();
    s.num_known_tokens = s.num_prompt_tokens = static_cast<int32_t>(tokens.size());
    s.first_position = first;
    s.num_tokens = count;
    s.pages = pages.data();
    s.num_pages = static_cast<int32_t>((first + count + 15) / 16);
    s.sampling = &sampling;
    s.sample = first + count == s.num_known_tokens;
    s.meter.metered_stride = 64;  // of prefills, as the server asks by default
    return s;
  }
  std::vector<int32_t> tokens, pages;
  SamplingParams sampling;
};

double run(Executor& executor, std::vector<SequenceSlice> slices) {
  StepPlan plan;
  for (const SequenceSlice& s : slices) plan.num_tokens += s.num_tokens;
  plan.slices = std::move(slices);
  const Clock::time_point start = Clock::now();
  const auto result = executor.execute(plan);
  const double ms = ms_since(start);
  if (!result.ok() || !result->slices[0].status.ok()) {
    std::fprintf(stderr, "a step failed: %s\n",
                 std::string((result.ok() ? result->slices[0].status : result.status()).message()).c_str());
    std::exit(1);
  }
  return ms;
}

void bench_case(Executor& executor, const std::string& pool, int32_t batch, int32_t context) {
  const int32_t vocabulary = executor.model().vocab_size;
  std::vector<Sequence> sequences;
  for (int32_t s = 0; s < batch; ++s) sequences.emplace_back(context, vocabulary, s);
  double prefill_ms = 0.0, first_ms = 0.0;
  for (const Sequence& s : sequences) {
    double ms = 0.0;
    for (int32_t first = 0; first < context; first += kChunk) {
      ms += run(executor, {s.slice(first, std::min(kChunk, context - first))});
    }
    prefill_ms += ms;
    first_ms = ms;
  }
  std::vector<double> steps;
  for (int32_t step = 0; step < kSteps; ++step) {
    std::vector<SequenceSlice> slices;
    for (Sequence& s : sequences) {
      s.tokens.push_back((step * 31 + 5) % vocabulary);
      slices.push_back(s.slice(static_cast<int32_t>(s.tokens.size()) - 1, 1));
    }
    const double ms = run(executor, slices);
    if (step >= 4) steps.push_back(ms);
  }
  std::sort(steps.begin(), steps.end());
  const double median = steps[steps.size() / 2];
  std::printf(
      "{\"pool\": \"%s\", \"batch\": %d, \"context\": %d, \"decode_step_ms\": %.3f, \"min_ms\": %.3f, "
      "\"tokens_per_s\": %.0f, "
      "\"prefill_ms_of_one\": %.1f, \"prefill_tokens_per_s\": %.0f, \"weight_gb\": %.2f}\n",
      pool.c_str(), batch, context, median, steps[0], 1e3 * batch / median, first_ms,
      1e3 * batch * context / prefill_ms, static_cast<double>(executor.model().weight_bytes) / 1e9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  using namespace assay;
  if (argc != 4) {
    std::fprintf(stderr, "usage: gpu_step_bench MODEL_FOLDER POOL[,POOL...] BATCHxCONTEXT[,...]\n");
    return 2;
  }
  for (const std::string& pool : split(argv[2])) {
    EngineConfig config;
    config.model_dir = argv[1];
    config.dummy_weights = true;
    config.seed = 1;
    config.device = "cuda";
    config.kv_pool = pool;
    config.max_num_seqs = 512;
    config.max_num_batched_tokens = kChunk;
    config.kv_cache_memory_bytes = int64_t{100} << 30;
    const Clock::time_point start = Clock::now();
    const auto executor = make_executor(config);
    if (!executor.ok()) {
      std::fprintf(stderr, "%s\n", std::string(executor.status().message()).c_str());
      return 1;
    }
    std::printf("{\"pool\": \"%s\", \"start_s\": %.1f, \"device\": \"%s\"}\n", pool.c_str(), ms_since(start) / 1e3,
                (*executor)->model().device.c_str());
    for (const std::string& c : split(argv[3])) {
      const size_t x = c.find('x');
      bench_case(**executor, pool, std::atoi(c.c_str()), std::atoi(c.c_str() + x + 1));
    }
  }
}
