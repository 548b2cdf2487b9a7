// Rates of the CPU kernels beside what the machine can do, in one run, in processor time of one thread, so that
// ratios mean something on a busy machine:
//   Read          bytes/s of a plain vector read of memory larger than the caches
//   Gemv          bytes/s of weights in a decode product (floor: 60 % of Read)
//   Gemm          flop/s of a prefill product beside oneDNN's float32 (floor: 50 %)
//   Decode        bytes/s of K and V in decode attention
//   DecodePool    decode attention by pool, every row metered (floor: certified 1.3 x exact at 4,096 tokens)
//   Prefill       flop/s of prefill attention
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "cache/pool/pool_layout.h"
#include "kernels/core/buffer.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/bench/onednn_matmul.h"

namespace assay {
namespace {

constexpr int64_t kColdBytes = int64_t{1} << 30;  // far beyond the last level cache

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.01f * static_cast<float>(i % 17) - 0.08f;
  return values;
}

// Threads read their parts of `memory`.
void BM_Read(benchmark::State& state) {
  const std::vector<uint64_t> memory(kColdBytes / 8, 1);
  ThreadPool pool(static_cast<int>(state.range(0)));
  constexpr int64_t kPart = 1 << 20;
  for (auto _ : state) {
    pool.parallel_for(kColdBytes / 8 / kPart, [&](int64_t part, int) {
      using Pair = uint64_t __attribute__((vector_size(16)));
      const Pair* data = reinterpret_cast<const Pair*>(memory.data() + part * kPart);
      constexpr int64_t kStreams = 8, kStream = kPart / 2 / kStreams;  // several streams keep more reads in flight
      Pair sums[kStreams] = {};
      for (int64_t i = 0; i < kStream; ++i) {
        for (int64_t j = 0; j < kStreams; ++j) sums[j] += data[j * kStream + i];
      }
      benchmark::DoNotOptimize(sums);
    });
  }
  state.SetBytesProcessed(state.iterations() * kColdBytes);
}
BENCHMARK(BM_Read)->Arg(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

// arguments: rows, threads. Weights bf16 [n, k], new ones for each product, as in a model larger than the caches.
void BM_Gemv(benchmark::State& state) {
  const int64_t m = state.range(0), k = 2048, n = kColdBytes / 2 / k;
  CpuOps ops(static_cast<int>(state.range(1)));
  const std::vector<uint16_t> weights(static_cast<size_t>(n * k), 0x3c00);
  std::vector<float> x = ramp(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n));
  const LinearPart part{{weights.data(), DType::kBF16, n, k, k}, {}};
  for (auto _ : state)
    ops.linear({x.data(), DType::kF32, m, k, k}, {&part, 1}, false, {y.data(), DType::kF32, m, n, n});
  state.SetBytesProcessed(state.iterations() * kColdBytes);
}
BENCHMARK(BM_Gemv)->Args({1, 1})->Args({4, 1})->Args({8, 1})->Args({15, 1})->MeasureProcessCPUTime()->Unit(
    benchmark::kMillisecond);

void set_flops(benchmark::State& state, double flops_per_iteration) {
  state.counters["flop/s"] =
      benchmark::Counter(flops_per_iteration * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// arguments: m, n, k, threads
void BM_Gemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  CpuOps ops(static_cast<int>(state.range(3)));
  const std::vector<uint16_t> weights(static_cast<size_t>(n * k), 0x3c00);
  std::vector<float> x = ramp(static_cast<size_t>(m * k)), y(static_cast<size_t>(m * n));
  const LinearPart part{{weights.data(), DType::kBF16, n, k, k}, {}};
  for (auto _ : state)
    ops.linear({x.data(), DType::kF32, m, k, k}, {&part, 1}, false, {y.data(), DType::kF32, m, n, n});
  set_flops(state, 2.0 * static_cast<double>(m * n * k));
}

void BM_GemmOneDnn(benchmark::State& state) {
  const auto matmul = make_onednn_matmul(state.range(0), state.range(1), state.range(2));
  if (!matmul) return state.SkipWithError("built without oneDNN");
  for (auto _ : state) matmul();
  set_flops(state, 2.0 * static_cast<double>(state.range(0) * state.range(1) * state.range(2)));
}

void gemm_shapes(benchmark::internal::Benchmark* bench) {
  for (int64_t m : {64, 512}) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{2048, 2048}, {8192, 2048}, {2048, 8192}, {1024, 384}, {384, 1024}}) {
      bench->Args({m, n, k, 1});
    }
  }
  bench->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_GemmOneDnn)->Apply(gemm_shapes);
BENCHMARK(BM_Gemm)->Apply(gemm_shapes);

// One layer's cache and queries of a few sequences.
struct AttentionCase {
  AttentionCase(int32_t sequences, int32_t rows, int32_t context, int32_t kv_heads, int32_t group, int32_t dim,
                const char* pool = "exact")
      : shape{kv_heads * group, kv_heads, dim} {
    const int32_t pages_each = (context + 15) / 16;
    const auto layout = make_pool_layout(pool, {1, kv_heads, dim, 16, DType::kBF16});
    if (!layout.ok()) std::abort();
    const int32_t num_pages = sequences * pages_each;
    cache = Buffer::make(device, static_cast<size_t>(num_pages * layout->bytes_per_page()));
    view = layout->view(cache.data(), num_pages);
    std::fill_n(reinterpret_cast<uint16_t*>(view.base), cache.bytes() / 2,
                uint16_t{0x2c84});  // a small number, also as bytes
    signs.assign(static_cast<size_t>(dim), 1.0f);
    value_norms.assign(static_cast<size_t>(num_pages * kv_heads), uint16_t{0x3c00});
    if (is_compressed(view.format)) view.tables.value_norms = value_norms.data();
    if (view.format == KvFormat::kCertified) view.tables.signs = signs.data();
    if (view.format == KvFormat::kWitcert) {
      dither.assign(static_cast<size_t>(kv_heads * dim) * kv::kDitherPeriod, 0.25f);
      view.tables.dither_stream = DitherStream::kPeriodic;
      view.tables.dither = dither.data();
    }
    pages.resize(static_cast<size_t>(view.num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    for (int32_t s = 0; s < sequences; ++s) {
      first_row.push_back(s * rows);
      for (int32_t r = 0; r < rows; ++r) {
        positions.push_back(context - rows + r);
        owners.push_back(s);
      }
    }
    first_row.push_back(sequences * rows);
    batch.num_tokens = sequences * rows;
    batch.num_sequences = sequences;
    batch.positions = positions.data();
    batch.sequences = owners.data();
    batch.first_row = first_row.data();
    batch.page_table = pages.data();
    batch.page_table_stride = pages_each;
    batch.max_context = context;
    make_meter();
    qkv = ramp(static_cast<size_t>(batch.num_tokens) * static_cast<size_t>(shape.qkv_columns()));
    out.resize(static_cast<size_t>(batch.num_tokens) * static_cast<size_t>(shape.num_heads * dim));
  }

  void run(CpuOps& ops) {
    const int64_t q_cols = shape.qkv_columns(), o_cols = shape.num_heads * shape.head_dim;
    ops.attention(0, batch, shape, {qkv.data(), DType::kF32, batch.num_tokens, q_cols, q_cols}, view, meter,
                  {out.data(), DType::kF32, batch.num_tokens, o_cols, o_cols});
    if (is_compressed(view.format)) ops.fold_meters(0, meter);
  }

  // Every row is metered, as decode rows are.
  void make_meter() {
    cell_of_row.resize(static_cast<size_t>(batch.num_tokens));
    std::iota(cell_of_row.begin(), cell_of_row.end(), 0);
    for (int32_t row = 0; row < batch.num_tokens; ++row) metered.push_back({row, owners[row], positions[row]});
    const size_t count = static_cast<size_t>(batch.num_tokens * shape.num_heads);
    cells.resize(count);
    verdicts.resize(count);
    thresholds.resize(static_cast<size_t>(batch.num_sequences));
    for (kv::MeterThresholds& t : thresholds) t.kappa = 7.0f;
    sequence_meters.resize(thresholds.size());
    head_meters.resize(static_cast<size_t>(shape.num_heads));
    meter = {.num_metered = batch.num_tokens,
             .num_heads = shape.num_heads,
             .radius = view.format == KvFormat::kWitcert ? kv::RadiusKind::kDither : kv::RadiusKind::kWitness,
             .cell_of_row = cell_of_row.data(),
             .rows = metered.data(),
             .thresholds = thresholds.data(),
             .cells = cells.data(),
             .verdicts = verdicts.data(),
             .sequences = sequence_meters.data(),
             .heads = head_meters.data()};
  }

  AttentionShape shape;
  PagedKvView view;
  BatchView batch;
  CpuDevice device{1};
  Buffer cache;
  std::vector<int32_t> pages, positions, owners, first_row, cell_of_row;
  std::vector<float> qkv, out, signs, dither;
  std::vector<uint16_t> value_norms;
  kv::MeterView meter;
  std::vector<kv::MeteredRow> metered;
  std::vector<kv::MeterThresholds> thresholds;
  std::vector<kv::MeterCell> cells;
  std::vector<kv::CellVerdict> verdicts;
  std::vector<kv::SequenceMeter> sequence_meters;
  std::vector<kv::HeadMeter> head_meters;
};

// arguments: sequences, context, group, threads
void BM_Decode(benchmark::State& state) {
  AttentionCase c(static_cast<int32_t>(state.range(0)), 1, static_cast<int32_t>(state.range(1)), 8,
                  static_cast<int32_t>(state.range(2)), 128);
  CpuOps ops(static_cast<int>(state.range(3)));
  for (auto _ : state) c.run(ops);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(c.cache.bytes()));
}
BENCHMARK(BM_Decode)
    ->Args({32, 8192, 4, 1})
    ->Args({32, 8192, 1, 1})
    ->Args({1, 128, 4, 1})
    ->Args({1, 128, 1, 1})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

// arguments: sequences, context, KV heads, group, head_dim, threads. Compare `exact` with `certified` of one run.
void BM_DecodePool(benchmark::State& state, const char* pool) {
  const auto arg = [&](int i) { return static_cast<int32_t>(state.range(i)); };
  AttentionCase c(arg(0), 1, arg(1), arg(2), arg(3), arg(4), pool);
  CpuOps ops(arg(5));
  for (auto _ : state) c.run(ops);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(c.cache.bytes()));
}
void pool_shapes(benchmark::internal::Benchmark* bench) {
  for (int64_t context : {4096, 128}) {
    bench->Args({8, context, 8, 4, 128, 1})->Args({8, context, 2, 3, 64, 1})->Args({8, context, 4, 1, 128, 1});
  }
  bench->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(BM_DecodePool, exact, "exact")->Apply(pool_shapes);
BENCHMARK_CAPTURE(BM_DecodePool, certified, "certified")->Apply(pool_shapes);
BENCHMARK_CAPTURE(BM_DecodePool, witcert, "witcert")->Apply(pool_shapes);

// arguments: rows, context, group
void BM_Prefill(benchmark::State& state) {
  const int32_t rows = static_cast<int32_t>(state.range(0)), context = static_cast<int32_t>(state.range(1));
  AttentionCase c(1, rows, context, 2, static_cast<int32_t>(state.range(2)), 128);
  CpuOps ops(1);
  for (auto _ : state) c.run(ops);
  const double scores = static_cast<double>(rows) * (context - rows / 2.0);
  set_flops(state, 4.0 * scores * 128 * c.shape.num_heads);
}
BENCHMARK(BM_Prefill)
    ->Args({512, 512, 3})
    ->Args({512, 4096, 3})
    ->Args({512, 4096, 1})
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace assay

BENCHMARK_MAIN();
