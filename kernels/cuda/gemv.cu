// Few rows of x against all rows of a weight matrix, at the speed of reading the weights.
//
// A block owns 16 rows of the weights; its warps take the inner dimension in turn, in chunks of 32, and their sums
// meet in shared memory. The matrix instruction (m16n8k16, weights as the A operand, x as B) does not care about the
// order of the inner dimension as long as A and B agree: so each lane reads 16 consecutive bytes of each, and no
// element is ever moved between lanes. Weights do not depend on earlier kernels: the first ones are on their way
// before the kernel waits for x.
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/launch.cuh"

namespace assay {
namespace {

constexpr int kWarps = 8;
constexpr int kBlockRows = 16;
constexpr int kChunk = 32;  // of the inner dimension: 4 lanes of 8 elements
constexpr int kUnroll = 4;  // chunks in flight a warp

struct GemvShape {
  int m, n, k;
  int64_t x_stride, weight_stride, out_stride;
  DType bias_dtype, out_dtype;
  bool accumulate;
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

__device__ __forceinline__ Quad load_shared_rows(const void* p) {
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

// kColumns x 8 rows of x.
template <class T, int kColumns>
__device__ __forceinline__ void multiply_tile(float (&sums)[kColumns][4], const WeightTile& tile, const T* x,
                                              const GemvShape& shape, int x_row, int first) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = first + u * kWarps * kChunk;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int row = c * 8 + x_row;
      const Quad b = at < shape.k && row < shape.m ? load_shared_rows(x + row * shape.x_stride + at) : Quad{};
      const Quad &a = tile.top[u], &z = tile.bottom[u];
      multiply_add<T>(sums[c], a.w[0], z.w[0], a.w[1], z.w[1], b.w[0], b.w[1]);
      multiply_add<T>(sums[c], a.w[2], z.w[2], a.w[3], z.w[3], b.w[2], b.w[3]);
    }
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

__device__ __forceinline__ void finish_element(const GemvShape& shape, const void* bias, void* out, int row, int column,
                                               float sum) {
  if (bias != nullptr) sum += load_element(shape.bias_dtype, bias, column);
  const int64_t at = row * shape.out_stride + column;
  if (shape.accumulate) sum += load_element(shape.out_dtype, out, at);
  store_element(shape.out_dtype, out, at, sum);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kWarps * 32)
    gemv_kernel(const T* x, const T* weight, const void* bias, void* out, GemvShape shape) {
  __shared__ float partial[kWarps][kColumns * 8][kBlockRows + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4;
  const int first_row = blockIdx.x * kBlockRows;
  const T* top = weight + min(first_row + group, shape.n - 1) * shape.weight_stride;
  const T* bottom = weight + min(first_row + group + 8, shape.n - 1) * shape.weight_stride;
  int at = warp * kChunk + (lane % 4) * 8;
  constexpr int kStep = kUnroll * kWarps * kChunk;
  WeightTile now;
  load_weights(now, top, bottom, at, shape.k);
  let_next_start();
  wait_for_inputs();
  float sums[kColumns][4] = {};
  for (; at < shape.k; at += kStep) {
    WeightTile next;
    load_weights(next, top, bottom, at + kStep, shape.k);
    multiply_tile<T, kColumns>(sums, now, x, shape, group, at);
    now = next;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    for (int i = 0; i < 4; ++i) partial[warp][c * 8 + (lane % 4) * 2 + i % 2][group + i / 2 * 8] = sums[c][i];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < shape.m * kBlockRows; e += kWarps * 32) {
    const int row = e / kBlockRows, column = e % kBlockRows;
    if (first_row + column >= shape.n) continue;
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][row][column];
    finish_element(shape, bias, out, row, first_row + column, sum);
  }
}

// A warp an element.
__global__ void any_product_kernel(const void* x, DType x_dtype, const void* weight, DType weight_dtype,
                                   const void* bias, void* out, GemvShape shape) {
  let_next_start();
  wait_for_inputs();
  const int64_t element = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (element >= static_cast<int64_t>(shape.m) * shape.n) return;
  const int row = static_cast<int>(element / shape.n), column = static_cast<int>(element % shape.n);
  float sum = 0.0f;
  for (int i = threadIdx.x % 32; i < shape.k; i += 32) {
    sum += load_element(x_dtype, x, row * shape.x_stride + i) *
           load_element(weight_dtype, weight, column * shape.weight_stride + i);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) finish_element(shape, bias, out, row, column, sum);
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

void launch_gemv(CudaContext& context, const LinearCall& call) {
  const GemvShape shape = shape_of(call);
  const dim3 grid((shape.n + kBlockRows - 1) / kBlockRows);
  const auto launch = [&]<class T>(T*) {
    auto* kernel = shape.m <= 8 ? gemv_kernel<T, 1> : gemv_kernel<T, 2>;
    launch_dependent(context, kernel, grid, dim3(kWarps * 32), 0, static_cast<const T*>(call.x.data),
                     static_cast<const T*>(call.weight.data), call.bias.data, call.out.data, shape);
  };
  if (call.x.dtype == DType::kF16) return launch(static_cast<__half*>(nullptr));
  launch(static_cast<__nv_bfloat16*>(nullptr));
}

void launch_any_product(CudaContext& context, const LinearCall& call) {
  const GemvShape shape = shape_of(call);
  const int64_t warps = static_cast<int64_t>(shape.m) * shape.n;
  launch_dependent(context, any_product_kernel, dim3((warps + 7) / 8), dim3(256), 0, call.x.data, call.x.dtype,
                   call.weight.data, call.weight.dtype, call.bias.data, call.out.data, shape);
}

}  // namespace assay
