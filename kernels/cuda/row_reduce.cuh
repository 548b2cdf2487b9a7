// Reductions over one row of logits by one block of kRowBlock threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace assay {

constexpr int kRowBlock = 1024;
constexpr int kRowWarps = kRowBlock / 32;

// A logit and its id, ordered: larger logit first, then lower id. Packed so that the better one is the larger integer.
// NaN does not occur (rows are checked first).
__device__ __forceinline__ uint32_t ordered_bits(float x) {
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // -0 ties with 0
  return bits ^ ((bits >> 31) != 0u ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ uint64_t ranked(float logit, int32_t id) {
  return static_cast<uint64_t>(ordered_bits(logit)) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
__device__ __forceinline__ int32_t id_of(uint64_t ranked) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(ranked));
}

// Combines x over the block; the result is in every thread. `shared` holds kRowWarps values; the block is in step on
// return.
template <class T, class Combine>
__device__ __forceinline__ T block_reduce(T x, T* shared, const Combine& combine) {
  for (int step = 16; step > 0; step /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[threadIdx.x % 32];
  for (int step = 16; step > 0; step /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
  __syncthreads();
  return x;
}

struct LargerOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct SumOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Sum of x over the threads before this one. `shared` holds kRowWarps values.
__device__ __forceinline__ uint64_t block_prefix(uint64_t x, uint64_t* shared) {
  uint64_t inclusive = x;
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t before = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (threadIdx.x % 32 >= step) inclusive += before;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) shared[threadIdx.x / 32] = inclusive;
  __syncthreads();
  uint64_t earlier = 0;
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) earlier += shared[w];
  __syncthreads();
  return earlier + inclusive - x;
}

// The largest of the row's ranked() and whether every logit is finite, the same in every thread. `shared` holds
// kRowWarps values.
__device__ __forceinline__ bool best_of_row(const float* row, int count, uint64_t* shared, uint64_t* best) {
  bool finite = true;
  uint64_t mine = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kRowBlock) {
    const float logit = row[i];
    finite &= isfinite(logit);
    mine = max(mine, ranked(logit, i));
  }
  *best = block_reduce(mine, shared, LargerOf());
  return __syncthreads_and(finite) != 0;
}

}  // namespace assay
