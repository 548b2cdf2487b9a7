// How kernels of this folder are launched and how they read and write elements of any dtype.
//
// Programmatic dependent launch: a kernel launched by launch_dependent() may start while the one before it still runs.
// It calls wait_for_inputs() before it touches anything that an earlier operation wrote; until then it may only read
// what never changes during a step (weights). Every such kernel waits, so a finished kernel implies all before it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/core/dtype.h"
#include "kernels/cuda/cuda_context.h"

namespace assay {

namespace detail {
template <class... Parameters, class... Arguments>
void launch(CudaContext& context, bool dependent, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  context.check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}
}  // namespace detail

// One kernel after the other: it starts when all before it are finished. The ordinary way. Starting kernels early made
// decode steps slower (ADR 27): blocks that wait hold the places of blocks that work.
template <class... Parameters, class... Arguments>
void launch_in_order(CudaContext& context, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                     const Arguments&... arguments) {
  detail::launch(context, /*dependent=*/false, kernel, grid, block, shared_bytes, arguments...);
}

template <class... Parameters, class... Arguments>
void launch_dependent(CudaContext& context, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                      const Arguments&... arguments) {
  detail::launch(context, /*dependent=*/true, kernel, grid, block, shared_bytes, arguments...);
}

// The next kernel may be launched now: it takes a free place on the chip and waits there.
__device__ __forceinline__ void let_next_start() {
  cudaTriggerProgrammaticLaunchCompletion();
}

// Everything issued before this kernel is finished and visible.
__device__ __forceinline__ void wait_for_inputs() {
  cudaGridDependencySynchronize();
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
// Saturates, keeps NaN.
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(fabsf(x) > kMaxF16 ? copysignf(kMaxF16, x) : x);
}

__device__ __forceinline__ float silu(float gate) {
  return gate / (1.0f + expf(-gate));
}

// One element of a weight vector whose dtype is known at run time only.
__device__ __forceinline__ float load_element(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kBF16:
      return to_float(static_cast<const __nv_bfloat16*>(data)[index]);
    case DType::kF16:
      return to_float(static_cast<const __half*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

// 16 bytes of elements, moved as one access.
template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* data) {
  return *reinterpret_cast<const Pack<T>*>(data);
}
template <class T>
__device__ __forceinline__ void store_pack(T* data, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(data) = pack;
}

// Sum over a block of whole warps, the same in every thread. `partial` is shared memory for one float a warp.
__device__ __forceinline__ float block_sum(float x, float* partial) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  const int warps = blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0.0f;
  for (int w = 0; w < warps; ++w) x += partial[w];
  return x;
}

// Calls body with a null pointer of the element type of `dtype`.
template <class Body>
void with_element_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(static_cast<float*>(nullptr));
    case DType::kBF16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    case DType::kF16:
      return body(static_cast<__half*>(nullptr));
  }
}

}  // namespace assay
