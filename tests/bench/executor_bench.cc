// Tokens per second of the whole executor with the bundled model: prefill of one prompt in chunks, decode of a batch.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>

#include "engine/execute/executor.h"

namespace assay {
namespace {

std::unique_ptr<Executor> make(int32_t threads, const char* pool = "exact") {
  EngineConfig config;
  config.model_dir = ASSAY_TEST_DATA "/models/tiny";
  config.threads = threads;
  config.kv_pool = pool;
  auto executor = make_executor(config);
  return executor.ok() ? *std::move(executor) : nullptr;
}

// One sequence of `length` tokens on pages of its own.
struct BenchSequence {
  BenchSequence(int32_t length, int32_t number) : tokens(static_cast<size_t>(length)), pages(tokens.size() / 16 + 1) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 37 + 11) % 6000);
    std::iota(pages.begin(), pages.end(), number * static_cast<int32_t>(pages.size()));
    sampling.temperature = 0.0f;
  }
  SequenceSlice slice(int32_t first, int32_t count) const {
    SequenceSlice slice;
    slice.tokens = tokens.data();
    slice.sequence_id = pages.front();
    slice.num_known_tokens = static_cast<int32_t>(tokens.size());
    slice.num_prompt_tokens = count == 1 ? first : slice.num_known_tokens;  // single tokens count as generated
    slice.first_position = first;
    slice.num_tokens = count;
    slice.pages = pages.data();
    slice.num_pages = static_cast<int32_t>(pages.size());
    slice.sampling = &sampling;
    slice.sample = first + count == slice.num_known_tokens;
    return slice;
  }
  std::vector<int32_t> tokens, pages;
  SamplingParams sampling;
};

StepPlan plan_of(std::vector<SequenceSlice> slices) {
  StepPlan plan;
  for (const SequenceSlice& slice : slices) plan.num_tokens += slice.num_tokens;
  plan.slices = std::move(slices);
  return plan;
}

// arguments: prompt tokens, threads
void BM_ExecutorPrefill(benchmark::State& state) {
  const auto executor = make(static_cast<int32_t>(state.range(1)));
  if (!executor) return state.SkipWithError("the model does not load");
  const int32_t length = static_cast<int32_t>(state.range(0));
  const BenchSequence sequence(length, 0);
  for (auto _ : state) {
    for (int32_t first = 0; first < length; first += 2048) {
      const int32_t count = std::min(2048, length - first);
      if (!executor->execute(plan_of({sequence.slice(first, count)})).ok()) state.SkipWithError("a step failed");
    }
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * length), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_ExecutorPrefill)
    ->Args({512, 1})
    ->Args({4096, 1})
    ->Args({4096, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// arguments: sequences, context, threads. Compare `exact` with `certified` of one run (floor: 0.98 at short contexts).
void BM_ExecutorDecode(benchmark::State& state, const char* pool) {
  const auto executor = make(static_cast<int32_t>(state.range(2)), pool);
  if (!executor) return state.SkipWithError("the model does not load");
  const int32_t count = static_cast<int32_t>(state.range(0)), context = static_cast<int32_t>(state.range(1));
  std::vector<BenchSequence> sequences;
  std::vector<SequenceSlice> decodes;
  for (int32_t s = 0; s < count; ++s) sequences.emplace_back(context, s);
  for (const BenchSequence& sequence : sequences) {
    for (int32_t first = 0; first < context; first += 2048) {
      const StepPlan chunk = plan_of({sequence.slice(first, std::min(2048, context - first))});
      if (!executor->execute(chunk).ok()) state.SkipWithError("a step failed");
    }
    decodes.push_back(sequence.slice(context - 1, 1));
  }
  const StepPlan plan = plan_of(std::move(decodes));
  for (auto _ : state) {
    if (!executor->execute(plan).ok()) state.SkipWithError("a step failed");
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * count), benchmark::Counter::kIsRate);
}
void decode_shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 128, 1})
      ->Args({8, 128, 1})
      ->Args({1, 512, 1})
      ->Args({1, 512, 2})
      ->Args({16, 512, 1})
      ->Args({16, 512, 2});
  bench->Args({1, 2048, 2})->Args({8, 4096, 1})->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(BM_ExecutorDecode, exact, "exact")->Apply(decode_shapes);
BENCHMARK_CAPTURE(BM_ExecutorDecode, certified, "certified")->Apply(decode_shapes);
BENCHMARK_CAPTURE(BM_ExecutorDecode, witcert, "witcert")->Apply(decode_shapes);

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
