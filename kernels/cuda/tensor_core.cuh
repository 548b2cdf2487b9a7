// Instructions of the matrix units and of the bulk copy engine, each as one function, and reductions over a warp.
// Lanes of a matrix fragment are named as in the PTX manual: group = lane / 4, place = lane % 4.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace assay {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

// c += a b, m16n8k16, float sums. T: __half or __nv_bfloat16.
template <class T>
__device__ __forceinline__ void multiply_tile(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                              uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_tile<__half>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                      uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_tile<__nv_bfloat16>(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four biased bytes (1..255, 128 is zero) -> levels as halves, in byte order: exact.
__device__ __forceinline__ void levels_from_bytes(uint32_t bytes, uint32_t& first, uint32_t& second) {
  // 0x6400 | byte is the half 1,024 + byte.
  uint32_t low, high;
  asm("prmt.b32 %0, %1, %2, 0x4140;" : "=r"(low) : "r"(bytes), "r"(0x64646464u));
  asm("prmt.b32 %0, %1, %2, 0x4342;" : "=r"(high) : "r"(bytes), "r"(0x64646464u));
  asm("sub.f16x2 %0, %1, %2;" : "=r"(first) : "r"(low), "r"(0x64806480u));
  asm("sub.f16x2 %0, %1, %2;" : "=r"(second) : "r"(high), "r"(0x64806480u));
}

// 2^x, relative error below 2^-22; 0 for -infinity.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats as a pair of T, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// An 8 x 8 matrix of 16-bit elements, a pair a lane, transposed.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four 8 x 8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// ---- Bulk copies: one thread asks, a barrier in shared memory tells when the bytes are there.

__device__ __forceinline__ void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// After the barriers of a block are initialised, by each thread that did it, before anyone uses them.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// bytes: a multiple of 16; both addresses aligned to 16.
__device__ __forceinline__ void start_bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void wait_barrier(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT_%=:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra WAIT_%=;\n}" ::
          "r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// ---- Asynchronous copies of 16 bytes by every thread

__device__ __forceinline__ void start_copy_16(uint32_t shared, const void* global, bool there) {
  const int bytes = there ? 16 : 0;  // what is not copied is zero
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Reductions over a warp, the same in every lane

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
// Over the eight groups of a fragment: lanes of the same place.
__device__ __forceinline__ float groups_sum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ __forceinline__ float groups_max(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

}  // namespace assay
