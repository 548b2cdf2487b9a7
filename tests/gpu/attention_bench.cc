// Times of the attention side of the CUDA back end, one shape after another: launches captured in graphs of ten,
// medians of nine replays. Text on standard output; with a file name as argument also one JSON object a line.
//   gpu_attention_bench [FILE [FILTER]]     FILTER: decode, prefill, write or fold
// Bandwidth counts the records a step must read (decode) or rows and records it moves (write); rates count 4 x rows x
// visible tokens x head_dim per head.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/kv/float_bits.h"

namespace assay {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK_CUDA(call) check(call, #call)

template <class T>
class Array {
 public:
  explicit Array(size_t count) : bytes_(count * sizeof(T)) {
    CHECK_CUDA(cudaMalloc(&data_, std::max<size_t>(bytes_, 16)));
  }
  explicit Array(const std::vector<T>& from) : Array(from.size()) {
    CHECK_CUDA(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  T* data() const { return static_cast<T*>(data_); }

  // Repeats a pattern over all of it.
  void repeat(const std::vector<T>& pattern) {
    const size_t first = std::min(bytes_, pattern.size() * sizeof(T));
    CHECK_CUDA(cudaMemcpy(data_, pattern.data(), first, cudaMemcpyHostToDevice));
    for (size_t done = first; done < bytes_;) {
      const size_t next = std::min(done, bytes_ - done);
      CHECK_CUDA(cudaMemcpy(static_cast<char*>(data_) + done, data_, next, cudaMemcpyDeviceToDevice));
      done += next;
    }
  }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

// Records with random payloads and plausible scales and bounds.
std::vector<uint8_t> certified_records(int32_t dim, int count) {
  std::mt19937 random(3);
  std::vector<uint8_t> bytes;
  for (int r = 0; r < count; ++r) {
    for (int32_t i = 0; i < 2 * kTileTokens * dim; ++i) bytes.push_back(static_cast<uint8_t>(1 + random() % 255));
    for (int i = 0; i < 4 * kTileTokens; ++i) {
      const int array = i / kTileTokens;  // K scales, witnesses, V scales, rho
      const float unit = static_cast<float>(random() % 1024) / 1024.0f;
      const float value = array % 2 == 0 ? 0.005f + 0.01f * unit : 0.05f + 0.05f * unit;
      const uint16_t half = kv::half_nearest(value);
      bytes.push_back(static_cast<uint8_t>(half & 0xff));
      bytes.push_back(static_cast<uint8_t>(half >> 8));
    }
  }
  return bytes;
}

std::vector<uint16_t> random_bf16(size_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = f32_to_bf16(normal(random));
  return values;
}

struct Shape {
  int32_t batch, kv_heads, group, length, rows;  // rows per sequence behind `length` stored tokens
  int32_t dim = 128;
};

// A pool and a batch over it.
class Setup {
 public:
  Setup(const Shape& s, KvFormat format) : shape_{s.kv_heads * s.group, s.kv_heads, s.dim}, s_(s) {
    const int32_t pages = (s.length + s.rows + kTileTokens - 1) / kTileTokens, total = pages * s.batch;
    cache.format = format;
    cache.dtype = DType::kBF16;
    cache.num_layers = 1;
    cache.num_pages = total;
    cache.page_tokens = kTileTokens;
    cache.num_kv_heads = s.kv_heads;
    cache.head_dim = s.dim;
    cache.record_bytes =
        is_compressed(format) ? CertifiedRecord::bytes(s.dim) : ExactRecord::bytes(s.dim, DType::kBF16);
    const size_t bytes = static_cast<size_t>(total * cache.page_layer_bytes());
    records_ = std::make_unique<Array<uint8_t>>(bytes);
    if (is_compressed(format)) {
      records_->repeat(certified_records(s.dim, 509));
    } else {
      const std::vector<uint16_t> values = random_bf16(509 * static_cast<size_t>(cache.record_bytes) / 2);
      std::vector<uint8_t> raw(values.size() * 2);
      std::memcpy(raw.data(), values.data(), raw.size());
      records_->repeat(raw);
    }
    cache.base = reinterpret_cast<std::byte*>(records_->data());
    norms_ = std::make_unique<Array<uint16_t>>(
        std::vector<uint16_t>(static_cast<size_t>(total * s.kv_heads), kv::half_nearest(10.0f)));
    cache.tables.value_norms = norms_->data();
    std::vector<float> signs(static_cast<size_t>(s.dim));
    kv::rotation_signs(s.dim, signs.data());
    signs_ = std::make_unique<Array<float>>(signs);
    lambda_ = std::make_unique<Array<float>>(std::vector<float>(static_cast<size_t>(s.kv_heads * s.dim), 1.25f));
    if (is_compressed(format)) {
      cache.tables.signs = signs_->data();
      cache.tables.lambda = lambda_->data();
    }
    make_batch(pages);
  }

  void make_batch(int32_t pages) {
    const int32_t tokens = s_.batch * s_.rows;
    std::vector<int32_t> order(static_cast<size_t>(cache.num_pages)), positions, owners, first_row = {0};
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::mt19937 random(5);
    std::shuffle(order.begin(), order.end(), random);
    for (int32_t b = 0; b < s_.batch; ++b) {
      for (int32_t r = 0; r < s_.rows; ++r) {
        positions.push_back(s_.length + r);
        owners.push_back(b);
      }
      first_row.push_back(static_cast<int32_t>(positions.size()));
    }
    table_ = std::make_unique<Array<int32_t>>(order);
    positions_ = std::make_unique<Array<int32_t>>(positions);
    owners_ = std::make_unique<Array<int32_t>>(owners);
    first_row_ = std::make_unique<Array<int32_t>>(first_row);
    qkv_ = std::make_unique<Array<uint16_t>>(static_cast<size_t>(tokens * shape_.qkv_columns()));
    qkv_->repeat(random_bf16(999983));
    out_ = std::make_unique<Array<uint16_t>>(static_cast<size_t>(tokens * shape_.num_heads * s_.dim));
    batch.num_tokens = tokens;
    batch.num_sequences = s_.batch;
    batch.positions = positions_->data();
    batch.sequences = owners_->data();
    batch.first_row = first_row_->data();
    batch.page_table = table_->data();
    batch.page_table_stride = pages;
    batch.max_context = s_.length + s_.rows;
    batch.num_decodes = s_.rows == 1 ? s_.batch : 0;
    batch.max_slice_rows = s_.rows;
    qkv = ConstTensor(qkv_->data(), DType::kBF16, tokens, shape_.qkv_columns(), shape_.qkv_columns());
    const int64_t columns = shape_.num_heads * s_.dim;
    out = Tensor{out_->data(), DType::kBF16, tokens, columns, columns};
  }

  // Meters every `stride`-th row.
  kv::MeterView meter(int32_t stride) {
    std::vector<int32_t> index;
    std::vector<kv::MeteredRow> rows;
    for (int32_t t = 0; t < batch.num_tokens; ++t) {
      index.push_back(t % stride == 0 ? static_cast<int32_t>(rows.size()) : -1);
      if (t % stride == 0)
        rows.push_back({t, t / s_.rows, s_.length, s_.rows == 1 ? kv::Phase::kDecode : kv::Phase::kPrefill});
    }
    const size_t cells = rows.size() * static_cast<size_t>(shape_.num_heads);
    index_ = std::make_unique<Array<int32_t>>(index);
    metered_ = std::make_unique<Array<kv::MeteredRow>>(rows);
    cells_ = std::make_unique<Array<kv::MeterCell>>(std::vector<kv::MeterCell>(cells));
    verdicts_ = std::make_unique<Array<kv::CellVerdict>>(std::vector<kv::CellVerdict>(cells));
    thresholds_ =
        std::make_unique<Array<kv::MeterThresholds>>(std::vector<kv::MeterThresholds>(static_cast<size_t>(s_.batch)));
    sequences_ =
        std::make_unique<Array<kv::SequenceMeter>>(std::vector<kv::SequenceMeter>(static_cast<size_t>(s_.batch)));
    heads_ = std::make_unique<Array<kv::HeadMeter>>(std::vector<kv::HeadMeter>(static_cast<size_t>(shape_.num_heads)));
    kv::MeterView view;
    view.num_metered = static_cast<int32_t>(rows.size());
    view.num_heads = shape_.num_heads;
    view.cell_of_row = index_->data();
    view.rows = metered_->data();
    view.thresholds = thresholds_->data();
    view.cells = cells_->data();
    view.verdicts = verdicts_->data();
    view.sequences = sequences_->data();
    view.heads = heads_->data();
    return view;
  }
  const AttentionShape& shape() const { return shape_; }

  PagedKvView cache;
  BatchView batch;
  ConstTensor qkv;
  Tensor out;

 private:
  AttentionShape shape_;
  Shape s_;
  std::unique_ptr<Array<uint8_t>> records_;
  std::unique_ptr<Array<uint16_t>> norms_, qkv_, out_;
  std::unique_ptr<Array<float>> signs_, lambda_;
  std::unique_ptr<Array<int32_t>> table_, positions_, owners_, first_row_, index_;
  std::unique_ptr<Array<kv::MeteredRow>> metered_;
  std::unique_ptr<Array<kv::MeterCell>> cells_;
  std::unique_ptr<Array<kv::CellVerdict>> verdicts_;
  std::unique_ptr<Array<kv::MeterThresholds>> thresholds_;
  std::unique_ptr<Array<kv::SequenceMeter>> sequences_;
  std::unique_ptr<Array<kv::HeadMeter>> heads_;
};

class Bench {
 public:
  explicit Bench(const char* file) {
    if (file != nullptr) json_ = std::fopen(file, "w");
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    context_.num_multiprocessors = properties.multiProcessorCount;
    CHECK_CUDA(cudaStreamCreate(&context_.stream));
  }
  ~Bench() {
    if (json_ != nullptr) std::fclose(json_);
  }

  // Milliseconds of one call.
  double time(const std::function<void(CudaContext&)>& issue) {
    constexpr int kCalls = 10, kReplays = 9;
    issue(context_);
    CHECK_CUDA(cudaStreamSynchronize(context_.stream));
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    CHECK_CUDA(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kCalls; ++i) issue(context_);
    CHECK_CUDA(cudaStreamEndCapture(context_.stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&replay, graph, 0));
    cudaEvent_t begin, end;
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 2; ++i) CHECK_CUDA(cudaGraphLaunch(replay, context_.stream));
    std::vector<float> times;
    for (int i = 0; i < kReplays; ++i) {
      CHECK_CUDA(cudaEventRecord(begin, context_.stream));
      CHECK_CUDA(cudaGraphLaunch(replay, context_.stream));
      CHECK_CUDA(cudaEventRecord(end, context_.stream));
      CHECK_CUDA(cudaEventSynchronize(end));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
      times.push_back(ms / kCalls);
    }
    CHECK_CUDA(context_.first_error);
    cudaEventDestroy(begin), cudaEventDestroy(end), cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void report(const char* what, const char* pool, const Shape& s, double ms, double amount, const char* unit) {
    std::printf("%-8s %-18s %4d x %-7d rows %-5d kv %d group %d dim %d: %9.4f ms  %8.1f %s\n", what, pool, s.batch,
                s.length, s.rows, s.kv_heads, s.group, s.dim, ms, amount, unit);
    std::fflush(stdout);
    if (json_ == nullptr) return;
    std::fprintf(json_,
                 "{\"what\":\"%s\",\"pool\":\"%s\",\"batch\":%d,\"length\":%d,\"rows\":%d,\"kv_heads\":%d,\"group\":%d,"
                 "\"head_dim\":%d,\"ms\":%.6f,\"%s\":%.2f}\n",
                 what, pool, s.batch, s.length, s.rows, s.kv_heads, s.group, s.dim, ms, unit, amount);
    std::fflush(json_);
  }

 private:
  CudaContext context_;
  std::FILE* json_ = nullptr;
};

void decode(Bench& bench, const Shape& s) {
  for (KvFormat format : {KvFormat::kExact, KvFormat::kCertified}) {
    Setup setup(s, format);
    const double bytes = static_cast<double>(s.batch) * s.length / kTileTokens * s.kv_heads *
                         static_cast<double>(setup.cache.record_bytes);
    for (bool metered : {false, true}) {
      if (metered && format == KvFormat::kExact) continue;
      const kv::MeterView meter = metered ? setup.meter(1) : kv::MeterView{};
      const double ms = bench.time([&](CudaContext& context) {
        launch_attention(context, 0, setup.batch, setup.shape(), setup.qkv, setup.cache, meter, setup.out);
      });
      const char* pool = format == KvFormat::kExact ? "exact" : metered ? "certified" : "certified-unmetered";
      bench.report("decode", pool, s, ms, bytes / ms / 1e6, "GB/s");
    }
  }
}

void prefill(Bench& bench, const Shape& s) {
  for (KvFormat format : {KvFormat::kExact, KvFormat::kCertified}) {
    Setup setup(s, format);
    const double visible = static_cast<double>(s.rows) * s.length + static_cast<double>(s.rows) * (s.rows + 1) / 2;
    const double flop = 4.0 * s.batch * visible * s.dim * s.kv_heads * s.group;
    for (int32_t stride : {0, 64}) {
      if (stride > 0 && (format == KvFormat::kExact || s.length == 0)) continue;
      const kv::MeterView meter = stride > 0 ? setup.meter(stride) : kv::MeterView{};
      const double ms = bench.time([&](CudaContext& context) {
        launch_attention(context, 0, setup.batch, setup.shape(), setup.qkv, setup.cache, meter, setup.out);
      });
      const char* pool = format == KvFormat::kExact ? "exact" : stride > 0 ? "certified-stride64" : "certified";
      bench.report("prefill", pool, s, ms, flop / ms / 1e9, "TFLOP/s");
    }
  }
}

void write(Bench& bench, const Shape& s) {
  for (KvFormat format : {KvFormat::kExact, KvFormat::kCertified}) {
    Setup setup(s, format);
    const double ms = bench.time(
        [&](CudaContext& context) { launch_kv_write(context, 0, setup.batch, setup.shape(), setup.qkv, setup.cache); });
    const double row = 4.0 * s.dim + static_cast<double>(setup.cache.record_bytes) / kTileTokens;
    bench.report("write", format == KvFormat::kExact ? "exact" : "certified", s, ms,
                 row * s.batch * s.rows * s.kv_heads / ms / 1e6, "GB/s");
  }
}

void fold(Bench& bench, const Shape& s) {
  Setup setup(s, KvFormat::kCertified);
  const kv::MeterView meter = setup.meter(1);
  bench.time([&](CudaContext& context) {
    launch_attention(context, 0, setup.batch, setup.shape(), setup.qkv, setup.cache, meter, setup.out);
  });
  const double ms = bench.time([&](CudaContext& context) { launch_fold_meters(context, 0, meter); });
  bench.report("fold", "certified", s, ms, s.batch * s.kv_heads * s.group / ms / 1e3, "Mcells/s");
}

int run(const char* file, const std::string& filter) {
  Bench bench(file);
  const auto wanted = [&](const char* what) { return filter.empty() || filter == what; };
  if (wanted("decode")) {
    for (const Shape& s : {Shape{64, 8, 4, 8192, 1},
                           {128, 8, 4, 4096, 1},
                           {16, 4, 7, 32768, 1},
                           {16, 8, 4, 8192, 1},
                           {256, 8, 4, 1024, 1},
                           {1, 8, 4, 131072, 1},
                           {1, 8, 4, 32768, 1},
                           {1, 8, 4, 8192, 1},
                           {32, 8, 4, 2048, 1},
                           {64, 8, 4, 8192, 1, 64}}) {
      decode(bench, s);
    }
  }
  if (wanted("prefill")) {
    for (const Shape& s : {Shape{1, 8, 4, 0, 2048},
                           {1, 8, 4, 0, 8192},
                           {1, 8, 4, 32768, 2048},
                           {1, 8, 4, 8192, 2048},
                           {8, 8, 4, 0, 1024},
                           {1, 8, 4, 0, 8192, 64}})
      prefill(bench, s);
  }
  if (wanted("write")) {
    for (const Shape& s : {Shape{1, 8, 4, 8192, 2048}, {64, 8, 4, 8192, 1}}) write(bench, s);
  }
  if (wanted("fold")) {
    for (const Shape& s : {Shape{1, 8, 4, 1024, 1}, {32, 8, 4, 1024, 1}, {256, 8, 4, 1024, 1}}) fold(bench, s);
  }
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  return assay::run(argc > 1 ? argv[1] : nullptr, argc > 2 ? argv[2] : "");
}
