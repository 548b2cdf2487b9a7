#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/launch.cuh"

namespace assay {
namespace {

constexpr int kMaxBlock = 1024;

// Threads for a row of `items`, whole warps.
int block_for(int64_t items) {
  return static_cast<int>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, kMaxBlock));
}

bool packs(const void* data, DType dtype, int64_t cols, int64_t stride) {
  const int64_t count = 16 / static_cast<int64_t>(dtype_bytes(dtype));
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && cols % count == 0 && stride % count == 0;
}

// out[block] = table[ids[block]], converted.
template <class In, class Out>
__global__ void take_rows_kernel(const In* table, int64_t table_stride, const int32_t* ids, Out* out,
                                 int64_t out_stride, int cols) {
  const In* from = table + static_cast<int64_t>(ids[blockIdx.x]) * table_stride;
  Out* to = out + blockIdx.x * out_stride;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) to[c] = from_float<Out>(to_float(from[c]));
}

void take_rows(CudaContext& context, ConstTensor table, const int32_t* ids, Tensor out) {
  with_element_type(table.dtype, [&]<class In>(In*) {
    with_element_type(out.dtype, [&]<class Out>(Out*) {
      launch_in_order(context, take_rows_kernel<In, Out>, dim3(out.rows), dim3(block_for(out.cols / 4)), 0,
                      static_cast<const In*>(table.data), table.row_stride, ids, static_cast<Out*>(out.data),
                      out.row_stride, static_cast<int>(out.cols));
    });
  });
}

// A row a block. Each thread keeps its first pack, so that rows up to a pack a thread are read once.
template <class T>
__global__ void rms_norm_pack_kernel(const T* x, int64_t x_stride, DType weight_dtype, const void* weight, float eps,
                                     T* out, int64_t out_stride, int packs) {
  __shared__ float partial[kMaxBlock / 32];
  constexpr int kCount = Pack<T>::kCount;
  const T* from = x + blockIdx.x * x_stride;
  T* to = out + blockIdx.x * out_stride;
  float squares = 0.0f;
  Pack<T> first{};
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack<T> pack = load_pack(from + p * kCount);
    if (p == threadIdx.x) first = pack;
    for (int i = 0; i < kCount; ++i) squares += to_float(pack.values[i]) * to_float(pack.values[i]);
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(packs * kCount);
  const float inverse = 1.0f / sqrtf(mean + eps);
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<T> pack = p == threadIdx.x ? first : load_pack(from + p * kCount);
    for (int i = 0; i < kCount; ++i) {
      const float w = load_element(weight_dtype, weight, p * kCount + i);
      pack.values[i] = from_float<T>(to_float(pack.values[i]) * inverse * w);
    }
    store_pack(to + p * kCount, pack);
  }
}

// The same for rows that are not whole aligned packs.
template <class T>
__global__ void rms_norm_kernel(const T* x, int64_t x_stride, DType weight_dtype, const void* weight, float eps, T* out,
                                int64_t out_stride, int cols) {
  __shared__ float partial[kMaxBlock / 32];
  const T* from = x + blockIdx.x * x_stride;
  T* to = out + blockIdx.x * out_stride;
  float squares = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) squares += to_float(from[c]) * to_float(from[c]);
  const float inverse = 1.0f / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + eps);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    to[c] = from_float<T>(to_float(from[c]) * inverse * load_element(weight_dtype, weight, c));
  }
}

template <class T>
__global__ void silu_mul_pack_kernel(const T* gate_up, int64_t in_stride, T* out, int64_t out_stride, int cols) {
  constexpr int kCount = Pack<T>::kCount;
  const int c = (blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (c >= cols) return;
  const T* gate = gate_up + blockIdx.x * in_stride + c;
  Pack<T> g = load_pack(gate);
  const Pack<T> u = load_pack(gate + cols);
  for (int i = 0; i < kCount; ++i) {
    g.values[i] = from_float<T>(silu(to_float(g.values[i])) * to_float(u.values[i]));
  }
  store_pack(out + blockIdx.x * out_stride + c, g);
}

template <class T>
__global__ void silu_mul_kernel(const T* gate_up, int64_t in_stride, T* out, int64_t out_stride, int cols) {
  const T* gate = gate_up + blockIdx.x * in_stride;
  T* to = out + blockIdx.x * out_stride;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    to[c] = from_float<T>(silu(to_float(gate[c])) * to_float(gate[cols + c]));
  }
}

struct InverseFrequencies {
  float values[kMaxRotaryPairs];
};

// The angle is rounded to float before the cosine, as in the implementation the checkpoints were trained with.
__global__ void rope_angles_kernel(const int32_t* positions, const __grid_constant__ InverseFrequencies inv_freq,
                                   int pairs, float scale, float* cos_sin) {
  float* row = cos_sin + static_cast<int64_t>(blockIdx.x) * 2 * pairs;
  const float position = static_cast<float>(positions[blockIdx.x]);
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    double sine, cosine;
    sincos(static_cast<double>(__fmul_rn(position, inv_freq.values[i])), &sine, &cosine);
    row[i] = static_cast<float>(cosine) * scale;
    row[pairs + i] = static_cast<float>(sine) * scale;
  }
}

struct HeadNorms {
  DType q_dtype, k_dtype;
  const void *q, *k;  // null = none
  float eps;
};

// A warp a (row, head) of q and k, in place.
template <class T>
__global__ void qk_norm_rope_kernel(AttentionShape shape, HeadNorms norms, const float* cos_sin, T* qkv, int64_t stride,
                                    int rows) {
  const int heads = shape.num_heads + shape.num_kv_heads, dim = shape.head_dim, pairs = dim / 2;
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (warp >= rows * heads) return;
  const int row = warp / heads, head = warp % heads;
  T* x = qkv + row * stride + head * dim;
  const bool is_query = head < shape.num_heads;
  const void* weight = is_query ? norms.q : norms.k;
  const DType dtype = is_query ? norms.q_dtype : norms.k_dtype;
  float inverse = 1.0f;
  if (weight != nullptr) {
    float squares = 0.0f;
    for (int c = lane; c < dim; c += 32) squares += to_float(x[c]) * to_float(x[c]);
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    inverse = 1.0f / sqrtf(squares / static_cast<float>(dim) + norms.eps);
  }
  const float* angles = cos_sin + static_cast<int64_t>(row) * dim;
  for (int i = lane; i < pairs; i += 32) {
    float a = to_float(x[i]), b = to_float(x[i + pairs]);
    if (weight != nullptr) {
      a *= inverse * load_element(dtype, weight, i);
      b *= inverse * load_element(dtype, weight, i + pairs);
    }
    const float c = angles[i], s = angles[pairs + i];
    x[i] = from_float<T>(a * c - b * s);
    x[i + pairs] = from_float<T>(b * c + a * s);
  }
}

}  // namespace

void launch_embed(CudaContext& context, ConstTensor table, const int32_t* ids, Tensor out) {
  take_rows(context, table, ids, out);
}

void launch_gather_rows(CudaContext& context, ConstTensor x, const int32_t* rows, Tensor out) {
  take_rows(context, x, rows, out);
}

void launch_rms_norm(CudaContext& context, ConstTensor x, ConstTensor weight, float eps, Tensor out) {
  const bool packed =
      packs(x.data, x.dtype, x.cols, x.row_stride) && packs(out.data, out.dtype, out.cols, out.row_stride);
  with_element_type(x.dtype, [&]<class T>(T*) {
    const T* from = static_cast<const T*>(x.data);
    T* to = static_cast<T*>(out.data);
    const int cols = static_cast<int>(x.cols), count = packed ? cols / Pack<T>::kCount : cols;
    auto* kernel = packed ? rms_norm_pack_kernel<T> : rms_norm_kernel<T>;
    launch_in_order(context, kernel, dim3(x.rows), dim3(block_for(count)), 0, from, x.row_stride, weight.dtype,
                    weight.data, eps, to, out.row_stride, count);
  });
}

void launch_silu_mul(CudaContext& context, ConstTensor gate_up, Tensor out) {
  const bool packed = packs(gate_up.data, gate_up.dtype, out.cols, gate_up.row_stride) &&
                      packs(out.data, out.dtype, out.cols, out.row_stride);
  with_element_type(out.dtype, [&]<class T>(T*) {
    const int cols = static_cast<int>(out.cols), items = packed ? cols / Pack<T>::kCount : cols;
    const int block = std::min(block_for(items), packed ? 256 : kMaxBlock);
    const dim3 grid(out.rows, packed ? (items + block - 1) / block : 1);
    auto* kernel = packed ? silu_mul_pack_kernel<T> : silu_mul_kernel<T>;
    launch_in_order(context, kernel, grid, dim3(block), 0, static_cast<const T*>(gate_up.data), gate_up.row_stride,
                    static_cast<T*>(out.data), out.row_stride, cols);
  });
}

void launch_rope_angles(CudaContext& context, const BatchView& batch, const RopeView& rope, float* cos_sin) {
  if (rope.rotary_pairs > kMaxRotaryPairs) std::abort();
  InverseFrequencies inv_freq{};
  std::copy_n(rope.inv_freq, rope.rotary_pairs, inv_freq.values);
  launch_in_order(context, rope_angles_kernel, dim3(batch.num_tokens), dim3(64), 0, batch.positions, inv_freq,
                  rope.rotary_pairs, rope.scale, cos_sin);
}

void launch_qk_norm_rope(CudaContext& context, const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm,
                         float eps, const float* cos_sin, Tensor qkv) {
  constexpr int kWarps = 4;
  const int heads = shape.num_heads + shape.num_kv_heads, rows = static_cast<int>(qkv.rows);
  const HeadNorms norms{q_norm.dtype, k_norm.dtype, q_norm.data, k_norm.data, eps};
  with_element_type(qkv.dtype, [&]<class T>(T*) {
    launch_in_order(context, qk_norm_rope_kernel<T>, dim3((rows * heads + kWarps - 1) / kWarps), dim3(kWarps * 32), 0,
                    shape, norms, cos_sin, static_cast<T*>(qkv.data), qkv.row_stride, rows);
  });
}

}  // namespace assay
