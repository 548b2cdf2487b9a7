// One row of a head, spread over a warp: lane l holds channels [l n, (l + 1) n), n = head_dim / 32. The transform of
// kernels/kv/row_transform.h in the same order of sums, so that the bits are the same.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/core/dtype.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/kv/row_transform.h"

namespace assay {

template <int D>
struct WarpRow {
  static constexpr int kCount = D / 32;
  float x[kCount];
};

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}

// Elements [at, at + D) of `data`; `at` and the address are multiples of the lane's part.
template <int D>
__device__ __forceinline__ WarpRow<D> load_row(DType dtype, const void* data, int64_t at) {
  constexpr int n = WarpRow<D>::kCount;
  WarpRow<D> row;
  const int64_t first = at + lane_id() * n;
  uint32_t words[n / 2];
  const uint32_t* from = reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(data) + first);
#pragma unroll
  for (int i = 0; i < n / 2; ++i) words[i] = from[i];
#pragma unroll
  for (int i = 0; i < n; ++i) {
    const uint16_t bits = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
    row.x[i] = dtype == DType::kBF16 ? __uint_as_float(static_cast<uint32_t>(bits) << 16)
                                     : __half2float(__ushort_as_half(bits));
  }
  return row;
}

// 16-bit element of `dtype` nearest to x; float16 saturates, NaN stays.
__device__ __forceinline__ uint16_t element_bits(DType dtype, float x) {
  if (dtype == DType::kBF16) return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  if (fabsf(x) > kMaxF16) x = copysignf(kMaxF16, x);
  return __half_as_ushort(__float2half_rn(x));
}

template <int D>
__device__ __forceinline__ void store_row(DType dtype, void* data, int64_t at, const WarpRow<D>& row) {
  constexpr int n = WarpRow<D>::kCount;
  uint32_t* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(data) + at + lane_id() * n);
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    to[i / 2] = element_bits(dtype, row.x[i]) | static_cast<uint32_t>(element_bits(dtype, row.x[i + 1])) << 16;
  }
}

template <int D>
__device__ __forceinline__ float square_sum(const WarpRow<D>& row) {
  float sum = 0.0f;
#pragma unroll
  for (float x : row.x) sum = fmaf(x, x, sum);
  return warp_sum(sum);
}

// x -> H x.
template <int D>
__device__ __forceinline__ void hadamard_row(WarpRow<D>& row) {
  constexpr int n = WarpRow<D>::kCount;
#pragma unroll
  for (int width = 1; width < n; width *= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if ((i & width) != 0) continue;
      const float a = row.x[i], b = row.x[i + width];
      row.x[i] = __fadd_rn(a, b);
      row.x[i + width] = __fsub_rn(a, b);
    }
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const bool upper = (lane_id() & step) != 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, row.x[i], step);
      row.x[i] = upper ? __fsub_rn(other, row.x[i]) : __fadd_rn(row.x[i], other);
    }
  }
}

// The diagonal matrices of a transform, each lane's part of them: loaded once for several rows.
template <int D>
struct LaneTransform {
  static constexpr int kCount = WarpRow<D>::kCount;
  bool balanced, rotated;
  WarpRow<D> lambda, signs;

  __device__ __forceinline__ explicit LaneTransform(const kv::RowTransform& t)
      : balanced(t.lambda != nullptr), rotated(t.signs != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      lambda.x[i] = balanced ? t.lambda[lane_id() * kCount + i] : 1.0f;
      signs.x[i] = rotated ? t.signs[lane_id() * kCount + i] : 1.0f;
    }
  }
};

enum class RowRole { kKey, kQuery, kValue };

// transform_key, transform_query or transform_value, without bypassed channels.
template <int D>
__device__ __forceinline__ void transform_row(const LaneTransform<D>& t, RowRole role, WarpRow<D>& row) {
  constexpr int n = WarpRow<D>::kCount;
  if (role != RowRole::kValue && t.balanced) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      row.x[i] = role == RowRole::kKey ? kv::divide(row.x[i], t.lambda.x[i]) : kv::multiply(row.x[i], t.lambda.x[i]);
    }
  }
  if (!t.rotated) return;
#pragma unroll
  for (int i = 0; i < n; ++i) row.x[i] *= t.signs.x[i];
  hadamard_row(row);
  const float norm = kv::rotation_norm(D);
#pragma unroll
  for (float& x : row.x) x = kv::multiply(x, norm);
}

// x -> R^T x.
template <int D>
__device__ __forceinline__ void rotate_row_back(const WarpRow<D>& signs, WarpRow<D>& row) {
  hadamard_row(row);
  const float norm = kv::rotation_norm(D);
#pragma unroll
  for (int i = 0; i < WarpRow<D>::kCount; ++i) row.x[i] = kv::multiply(row.x[i], norm) * signs.x[i];
}

}  // namespace assay
