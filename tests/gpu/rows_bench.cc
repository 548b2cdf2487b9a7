// Products and samplers of the GPU at the shapes of an 8B model, beside a device copy and cuBLASLt in the same run.
// Each figure: median of several timings of replayed launches that go through more weights than the cache holds.
//   gpu_rows_bench            one JSON object a line
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/sampling.h"
#include "tests/gpu/read_memory.h"

namespace assay {
namespace {

constexpr size_t kCold = size_t{1} << 30;

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* device_memory(size_t count) {
  T* data = nullptr;
  must(cudaMalloc(&data, count * sizeof(T)));
  return data;
}

// Random bf16 (or float) values around zero.
void fill(void* data, size_t halves) {
  std::vector<uint16_t> host(std::min<size_t>(halves, 1 << 22));
  uint64_t state = 88172645463325252u;
  for (uint16_t& h : host) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    h = static_cast<uint16_t>(0x3c00 | (state >> 20 & 0x81ff));
  }
  for (size_t at = 0; at < halves; at += host.size()) {
    const size_t count = std::min(host.size(), halves - at);
    must(cudaMemcpy(static_cast<uint16_t*>(data) + at, host.data(), count * 2, cudaMemcpyHostToDevice));
  }
}

// Milliseconds of one call of `issue(i)`, which is captured `repeats` times in a row.
double time_of(CudaContext& context, int repeats, const std::function<void(int)>& issue) {
  issue(0);
  must(cudaStreamSynchronize(context.stream));
  must(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < repeats; ++i) issue(i);
  cudaGraph_t graph;
  cudaGraphExec_t run;
  must(cudaStreamEndCapture(context.stream, &graph));
  must(cudaGraphInstantiate(&run, graph, 0));
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  std::vector<float> times;
  for (int round = 0; round < 9; ++round) {
    must(cudaEventRecord(begin, context.stream));
    must(cudaGraphLaunch(run, context.stream));
    must(cudaEventRecord(end, context.stream));
    must(cudaEventSynchronize(end));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin, end));
    if (round >= 2) times.push_back(ms / static_cast<float>(repeats));
  }
  std::sort(times.begin(), times.end());
  must(cudaGraphExecDestroy(run));
  must(cudaGraphDestroy(graph));
  must(context.first_error);
  return times[times.size() / 2];
}

double copy_bandwidth(CudaContext& context) {
  char *from = device_memory<char>(2 * kCold), *to = device_memory<char>(2 * kCold);
  fill(from, kCold);
  const double ms = time_of(
      context, 5, [&](int) { must(cudaMemcpyAsync(to, from, 2 * kCold, cudaMemcpyDeviceToDevice, context.stream)); });
  must(cudaFree(from));
  must(cudaFree(to));
  return 4.0 * kCold / ms / 1e6;
}

// What a kernel that only reads reaches: the sum over 4 GB.
double read_bandwidth(CudaContext& context) {
  float* from = device_memory<float>(kCold);
  float* out = device_memory<float>(4096);
  fill(from, 2 * kCold);
  const double ms = time_of(context, 3, [&](int) { launch_read(context, from, static_cast<int64_t>(kCold), out); });
  must(cudaFree(from));
  must(cudaFree(out));
  return 4.0 * kCold / ms / 1e6;
}

struct Shape {
  const char* name;
  int64_t n, k;
  DType out;
};

void bench_products(CudaContext& context, double read_gbs) {
  Gemm gemm;
  if (!gemm.unavailable().empty()) std::printf("{\"warning\": \"%s\"}\n", gemm.unavailable().c_str());
  const Shape shapes[] = {{"qkv", 6144, 4096, DType::kBF16},
                          {"o", 4096, 4096, DType::kBF16},
                          {"gate_up", 28672, 4096, DType::kBF16},
                          {"down", 4096, 14336, DType::kBF16},
                          {"head", 128256, 4096, DType::kF32}};
  uint16_t* x = device_memory<uint16_t>(8192 * 14336);
  float* y = device_memory<float>(size_t{8192} * 28672);
  fill(x, 8192 * 14336);
  for (const Shape& s : shapes) {
    const size_t elements = static_cast<size_t>(s.n * s.k);
    const int copies = static_cast<int>(std::clamp<size_t>(kCold / (2 * elements), 1, 16));
    uint16_t* w = device_memory<uint16_t>(elements * static_cast<size_t>(copies));
    fill(w, elements * static_cast<size_t>(copies));
    for (int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192}) {
      if (s.out == DType::kF32 && m > 256) continue;
      const auto call = [&](int i) {
        return LinearCall{{x, DType::kBF16, m, s.k, s.k},
                          {w + elements * static_cast<size_t>(i % copies), DType::kBF16, s.n, s.k, s.k},
                          {},
                          {y, s.out, m, s.n, s.n},
                          s.n == 4096};
      };
      const int repeats = m > 512 ? 4 : 16;
      double own = 0.0, own4 = 0.0;
      if (gemv_fits(call(0))) {
        own = time_of(context, repeats, [&](int i) { launch_gemv(context, call(i), 2); });
        own4 = time_of(context, repeats, [&](int i) { launch_gemv(context, call(i), 4); });
      }
      const double library = time_of(context, repeats, [&](int i) {
        if (!gemm.library_product(context, call(i))) must(cudaErrorNotSupported);
      });
      const double gb = 2e-9 * static_cast<double>(elements), flop = 2.0 * static_cast<double>(elements * m);
      std::printf(
          "{\"product\": \"%s\", \"m\": %ld, \"own2_us\": %.2f, \"own4_us\": %.2f, \"cublaslt_us\": %.2f, "
          "\"own_gb_per_s\": %.0f, \"cublaslt_gb_per_s\": %.0f, \"read_gb_per_s\": %.0f, \"cublaslt_tflops\": %.1f}\n",
          s.name, m, own * 1e3, own4 * 1e3, library * 1e3, own > 0 ? gb / std::min(own, own4) * 1e3 : 0.0,
          gb / library * 1e3, read_gbs, flop / library / 1e9);
    }
    must(cudaFree(w));
  }
  must(cudaFree(x));
  must(cudaFree(y));
}

// Kernels between the products, back to back as a decode step issues them.
void bench_small(CudaContext& context) {
  uint16_t* x = device_memory<uint16_t>(512 * 28672);
  uint16_t* w = device_memory<uint16_t>(28672);
  uint16_t* y = device_memory<uint16_t>(512 * 28672);
  fill(x, 512 * 28672);
  fill(w, 28672);
  for (int64_t m : {1, 32, 512}) {
    const double norm = time_of(context, 32, [&](int) {
      launch_rms_norm(context, {x, DType::kBF16, m, 4096, 4096}, {w, DType::kBF16, 1, 4096, 4096}, 1e-5f,
                      {y, DType::kBF16, m, 4096, 4096});
    });
    const double silu = time_of(context, 32, [&](int) {
      launch_silu_mul(context, {x, DType::kBF16, m, 28672, 28672}, {y, DType::kBF16, m, 14336, 14336});
    });
    std::printf("{\"rows\": %ld, \"rms_norm_us\": %.2f, \"silu_mul_us\": %.2f}\n", m, norm * 1e3, silu * 1e3);
  }
}

void bench_sampling(CudaContext& context) {
  const int64_t vocabulary = 128256;
  RowScratch scratch;
  float* logits = device_memory<float>(256 * 128256);
  std::vector<float> host(256 * 128256);
  uint64_t state = 1;
  for (float& x : host) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<float>(state >> 40) * 0x1p-21f - 4.0f;
  }
  must(cudaMemcpy(logits, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  SamplingRow greedy, plain, filtered;
  greedy.temperature = 0.0f;
  filtered.top_p = 0.95f;
  filtered.top_k = 50;
  for (size_t n : {1, 32, 256}) {
    std::vector<int32_t> tokens(n);
    double us[3];
    int at = 0;
    for (const SamplingRow& row : {greedy, plain, filtered}) {
      const std::vector<SamplingRow> rows(n, row);
      const ConstTensor view(logits, DType::kF32, static_cast<int64_t>(n), vocabulary, vocabulary);
      cuda_sample(context, scratch, view, rows, tokens.data());
      cudaEvent_t begin, end;
      must(cudaEventCreate(&begin));
      must(cudaEventCreate(&end));
      must(cudaEventRecord(begin, context.stream));
      for (int i = 0; i < 10; ++i) cuda_sample(context, scratch, view, rows, tokens.data());
      must(cudaEventRecord(end, context.stream));
      must(cudaEventSynchronize(end));
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end));
      us[at++] = ms * 100.0;
    }
    std::printf("{\"sample_rows\": %zu, \"greedy_us\": %.1f, \"plain_us\": %.1f, \"top_k_top_p_us\": %.1f}\n", n, us[0],
                us[1], us[2]);
  }
}

}  // namespace
}  // namespace assay

int main() {
  using namespace assay;
  CudaContext context;
  must(cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking));
  must(cudaDeviceGetAttribute(&context.num_multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const double copy_gbs = copy_bandwidth(context);
  const double read_gbs = read_bandwidth(context);
  std::printf("{\"copy_gb_per_s\": %.0f, \"read_gb_per_s\": %.0f}\n", copy_gbs, read_gbs);
  bench_small(context);
  bench_sampling(context);
  bench_products(context, read_gbs);
}
