// Few rows of x against all rows of a weight matrix, at the speed of reading the weights.
//
// A block owns 16 rows of the weights; its warps take the inner dimension in turn, in chunks of 32, and their sums meet
// in shared memory. The matrix instruction (m16n8k16, weights as the A operand, x as B) does not care about the order
// of the inner dimension as long as A and B agree: so each lane reads 16 consecutive bytes of each, and no element is
// ever moved between lanes. Neighbouring warps read neighbouring chunks at the same time (a warp that read 256 bytes of
// a row by itself was 5 % slower).
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/launch.cuh"

namespace assay {
namespace {

constexpr int kWarps = 8;
constexpr int kBlockRows = 16;
constexpr int kChunk = 32;  // of the inner dimension: 4 lanes of 8 elements
constexpr int kUnroll = 4;  // chunks a warp reads at a time, one of each round of the warps

struct GemvShape {
  int m, n, k;
  int64_t x_stride, weight_stride, out_stride;
  DType bias_dtype, out_dtype;
  bool accumulate;
};

// The two halves of a block's weight rows: rows r and r + 8 of one matrix, or row r of two (gate and up).
template <class T>
struct WeightPair {
  const T *top, *bottom;
  const void *top_bias, *bottom_bias;  // null = none
};

struct Quad {
  uint32_t w[4];
};

// Streams past the caches: a weight is read once a step.
__device__ __forceinline__ Quad load_once(const void* p) {
  Quad q;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3])
               : "l"(p));
  return q;
}

// Stays in the caches: every block reads all of x.
__device__ __forceinline__ Quad load_kept(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return Quad{{v.x, v.y, v.z, v.w}};
}

template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint32_t b0, uint32_t b1) {
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// The two weight rows of a lane over kUnroll chunks.
struct WeightTile {
  Quad top[kUnroll], bottom[kUnroll];
};

template <class T>
__device__ __forceinline__ void load_weights(WeightTile& tile, const T* top, const T* bottom, int first, int k) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = first + u * kWarps * kChunk;
    if (at >= k) {
      tile.top[u] = tile.bottom[u] = Quad{};
      continue;
    }
    tile.top[u] = load_once(top + at);
    tile.bottom[u] = load_once(bottom + at);
  }
}

// `x` is the row of x that is this lane's column; null = none.
template <class T>
__device__ __forceinline__ void multiply_tile(float (&sums)[4], const WeightTile& tile, const T* x, int first, int k) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = first + u * kWarps * kChunk;
    const Quad b = at < k && x != nullptr ? load_kept(x + at) : Quad{};
    const Quad &a = tile.top[u], &z = tile.bottom[u];
    multiply_add<T>(sums, a.w[0], z.w[0], a.w[1], z.w[1], b.w[0], b.w[1]);
    multiply_add<T>(sums, a.w[2], z.w[2], a.w[3], z.w[3], b.w[2], b.w[3]);
  }
}

__device__ __forceinline__ void store_element(DType dtype, void* data, int64_t index, float value) {
  switch (dtype) {
    case DType::kBF16:
      static_cast<__nv_bfloat16*>(data)[index] = from_float<__nv_bfloat16>(value);
      return;
    case DType::kF16:
      static_cast<__half*>(data)[index] = from_float<__half>(value);
      return;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

__device__ __forceinline__ void finish_element(const GemvShape& shape, void* out, int row, int column, float sum) {
  const int64_t at = row * shape.out_stride + column;
  if (shape.accumulate) sum += load_element(shape.out_dtype, out, at);
  store_element(shape.out_dtype, out, at, sum);
}

__device__ __forceinline__ float biased(const GemvShape& shape, const void* bias, int column, float sum) {
  return bias == nullptr ? sum : sum + load_element(shape.bias_dtype, bias, column);
}

// kGated: out = silu(x top^T) * (x bottom^T), 8 outputs a block; otherwise 16 outputs of one matrix.
// kBlocks: so many blocks share a multiprocessor. Up to two, a warp reads a tile ahead; more blocks do without.
template <class T, bool kGated, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    gemv_kernel(const T* x, const __grid_constant__ WeightPair<T> weights, void* out,
                const __grid_constant__ GemvShape shape) {
  constexpr int kOutputs = kGated ? kBlockRows / 2 : kBlockRows;
  constexpr bool kAhead = kBlocks <= 2;
  __shared__ float partial[kWarps][kGemvMaxRows][kBlockRows + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4;
  const int first_row = blockIdx.x * kOutputs, bottom_row = first_row + group + (kGated ? 0 : 8);
  const T* top = weights.top + min(first_row + group, shape.n - 1) * shape.weight_stride;
  const T* bottom = weights.bottom + min(bottom_row, shape.n - 1) * shape.weight_stride;
  const int offset = (lane % 4) * 8;
  constexpr int kStep = kUnroll * kWarps * kChunk;
  WeightTile now;
  load_weights(now, top, bottom, warp * kChunk + offset, shape.k);
  const T* x_row = group < shape.m ? x + group * shape.x_stride : nullptr;
  float sums[4] = {};
  // The lanes of a warp stay together: the last tile may be short, what is behind its end counts as zero.
  for (int tile = warp * kChunk; tile < shape.k; tile += kStep) {
    if constexpr (kAhead) {
      WeightTile next;
      load_weights(next, top, bottom, tile + kStep + offset, shape.k);
      multiply_tile(sums, now, x_row, tile + offset, shape.k);
      now = next;
    } else {
      multiply_tile(sums, now, x_row, tile + offset, shape.k);
      load_weights(now, top, bottom, tile + kStep + offset, shape.k);
    }
  }
  for (int i = 0; i < 4; ++i) partial[warp][(lane % 4) * 2 + i % 2][group + i / 2 * 8] = sums[i];
  __syncthreads();
  for (int e = threadIdx.x; e < shape.m * kOutputs; e += kWarps * 32) {
    const int row = e / kOutputs, column = e % kOutputs;
    if (first_row + column >= shape.n) continue;
    float sum = 0.0f, up = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      sum += partial[w][row][column];
      if (kGated) up += partial[w][row][column + kOutputs];
    }
    sum = biased(shape, weights.top_bias, first_row + column, sum);
    if (kGated) sum = silu(sum) * biased(shape, weights.bottom_bias, first_row + column, up);
    finish_element(shape, out, row, first_row + column, sum);
  }
}

// A warp an element.
__global__ void any_product_kernel(const void* x, DType x_dtype, const void* weight, DType weight_dtype,
                                   const void* bias, void* out, GemvShape shape) {
  const int64_t element = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (element >= static_cast<int64_t>(shape.m) * shape.n) return;
  const int row = static_cast<int>(element / shape.n), column = static_cast<int>(element % shape.n);
  float sum = 0.0f;
  for (int i = threadIdx.x % 32; i < shape.k; i += 32) {
    sum += load_element(x_dtype, x, row * shape.x_stride + i) *
           load_element(weight_dtype, weight, column * shape.weight_stride + i);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) finish_element(shape, out, row, column, biased(shape, bias, column, sum));
}

GemvShape shape_of(const LinearCall& call) {
  return {static_cast<int>(call.x.rows),
          static_cast<int>(call.weight.rows),
          static_cast<int>(call.x.cols),
          call.x.row_stride,
          call.weight.row_stride,
          call.out.row_stride,
          call.bias.dtype,
          call.out.dtype,
          call.accumulate};
}

bool in_packs(ConstTensor t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.cols % 8 == 0 && t.row_stride % 8 == 0;
}

}  // namespace

bool gemv_fits(const LinearCall& call) {
  return call.x.dtype == call.weight.dtype && call.x.dtype != DType::kF32 && call.x.rows <= kGemvMaxRows &&
         in_packs(call.x) && in_packs(call.weight);
}

namespace {

template <class T, bool kGated>
void launch_pair(CudaContext& context, const LinearCall& call, ConstTensor bottom, const void* bottom_bias,
                 int blocks_per_multiprocessor) {
  constexpr int kOutputs = kGated ? kBlockRows / 2 : kBlockRows;
  const GemvShape shape = shape_of(call);
  const WeightPair<T> weights{static_cast<const T*>(call.weight.data), static_cast<const T*>(bottom.data),
                              call.bias.data, bottom_bias};
  const int blocks = (shape.n + kOutputs - 1) / kOutputs;
  const bool few =
      blocks_per_multiprocessor != 0 ? blocks_per_multiprocessor <= 2 : blocks <= 2 * context.num_multiprocessors;
  auto* kernel = few ? gemv_kernel<T, kGated, 2> : gemv_kernel<T, kGated, 4>;
  launch_in_order(context, kernel, dim3(blocks), dim3(kWarps * 32), 0, static_cast<const T*>(call.x.data), weights,
                  call.out.data, shape);
}

}  // namespace

void launch_gemv(CudaContext& context, const LinearCall& call, int blocks_per_multiprocessor) {
  auto* launch = call.x.dtype == DType::kF16 ? launch_pair<__half, false> : launch_pair<__nv_bfloat16, false>;
  launch(context, call, call.weight, call.bias.data, blocks_per_multiprocessor);
}

bool gated_gemv_fits(const LinearCall& gate, const LinearPart& up) {
  const ConstTensor& w = up.weight;
  const bool same = w.dtype == gate.weight.dtype && w.rows == gate.weight.rows && w.cols == gate.weight.cols &&
                    w.row_stride == gate.weight.row_stride && up.bias.dtype == gate.bias.dtype;
  return same && gemv_fits(gate) && in_packs(w);
}

void launch_gated_gemv(CudaContext& context, const LinearCall& gate, const LinearPart& up,
                       int blocks_per_multiprocessor) {
  auto* launch = gate.x.dtype == DType::kF16 ? launch_pair<__half, true> : launch_pair<__nv_bfloat16, true>;
  launch(context, gate, up.weight, up.bias.data, blocks_per_multiprocessor);
}

void launch_any_product(CudaContext& context, const LinearCall& call) {
  const GemvShape shape = shape_of(call);
  const int64_t warps = static_cast<int64_t>(shape.m) * shape.n;
  launch_in_order(context, any_product_kernel, dim3((warps + 7) / 8), dim3(256), 0, call.x.data, call.x.dtype,
                  call.weight.data, call.weight.dtype, call.bias.data, call.out.data, shape);
}

}  // namespace assay
