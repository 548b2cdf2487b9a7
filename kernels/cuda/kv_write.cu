// Writes K and V of the batch's rows into the cache. Exact pool: a block turns 16 rows of one KV head. Compressed
// pools: a warp transforms, encodes and places one row; its bytes are those of the CPU (the bounds beside them may
// differ by the order of their sums, which their margins cover).
#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp_row.cuh"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"

namespace assay {
namespace {

constexpr int kBlockThreads = 128;

struct WriteParams {
  PagedKvView cache;
  const int32_t* positions;
  const int32_t* sequences;
  const int32_t* first_row;
  const int32_t* page_table;
  int32_t page_table_stride;
  int32_t num_tokens;
  int32_t num_heads;
  int32_t layer;
  const void* qkv;
  DType qkv_dtype;
  int64_t row_stride;

  __device__ const int32_t* pages_of(int32_t sequence) const {
    return page_table + static_cast<int64_t>(sequence) * page_table_stride;
  }
  __device__ int64_t key_at(int32_t row, int32_t kv_head) const {
    return row * row_stride + static_cast<int64_t>(num_heads + kv_head) * cache.head_dim;
  }
  __device__ int64_t value_at(int32_t row, int32_t kv_head) const {
    return key_at(row, kv_head) + static_cast<int64_t>(cache.num_kv_heads) * cache.head_dim;
  }
};

// ---- Exact pool

__device__ __forceinline__ uint16_t converted(uint16_t bits, DType from, DType to) {
  if (from == to) return bits;
  const float x =
      from == DType::kBF16 ? __uint_as_float(static_cast<uint32_t>(bits) << 16) : __half2float(__ushort_as_half(bits));
  return element_bits(to, x);
}

__global__ void __launch_bounds__(kBlockThreads) write_exact_kernel(const __grid_constant__ WriteParams p) {
  __shared__ uint16_t keys[kTileTokens][kv::kMaxHeadDim / 4 + 2];
  __shared__ uint16_t* records[kTileTokens];
  __shared__ int slots[kTileTokens];
  const int first = blockIdx.x * kTileTokens, kv_head = blockIdx.y, d = p.cache.head_dim;
  const int rows = min(kTileTokens, p.num_tokens - first);
  if (threadIdx.x < rows) {
    const int row = first + threadIdx.x, position = p.positions[row];
    records[threadIdx.x] =
        reinterpret_cast<uint16_t*>(p.cache.record_of(p.layer, p.pages_of(p.sequences[row]), kv_head, position));
    slots[threadIdx.x] = position % kTileTokens;
  }
  let_next_start();
  wait_for_inputs();
  const uint16_t* qkv = static_cast<const uint16_t*>(p.qkv);
  for (int e = threadIdx.x; e < rows * d; e += kBlockThreads) {
    keys[e / d][e % d] = qkv[p.key_at(first + e / d, kv_head) + e % d];
  }
  __syncthreads();
  for (int e = threadIdx.x; e < kTileTokens * d; e += kBlockThreads) {
    const int r = e % kTileTokens, c = e / kTileTokens;  // neighbours write neighbouring tokens
    if (r < rows) {
      records[r][ExactRecord::k_index(c, slots[r])] = converted(keys[r][c], p.qkv_dtype, p.cache.dtype);
    }
  }
  for (int e = threadIdx.x; e < rows * d; e += kBlockThreads) {
    const int r = e / d, c = e % d;
    const uint16_t bits = qkv[p.value_at(first + r, kv_head) + c];
    records[r][ExactRecord::v_index(d, c, slots[r])] = converted(bits, p.qkv_dtype, p.cache.dtype);
  }
}

// ---- Certified pool

// The row as the pool's exact rows hold it.
template <int D>
__device__ __forceinline__ WarpRow<D> exact_row(const WriteParams& p, int64_t at) {
  WarpRow<D> row = load_row<D>(p.qkv_dtype, p.qkv, at);
  if (p.cache.dtype == p.qkv_dtype) return row;
#pragma unroll
  for (float& x : row.x) {
    const uint16_t bits = element_bits(p.cache.dtype, x);
    x = p.cache.dtype == DType::kBF16 ? kv::bf16_to_float(bits) : __half2float(__ushort_as_half(bits));
  }
  return row;
}

template <int D>
struct EncodedRow {
  uint8_t bytes[WarpRow<D>::kCount];
  kv::CertifiedSide side;
};

// encode_certified_key / _value of codec.h, a row a warp.
template <int D>
__device__ __forceinline__ EncodedRow<D> encode_row(const WarpRow<D>& row, bool key,
                                                    const kv::ArithmeticMargins& margins) {
  float amax = 0.0f;
#pragma unroll
  for (float x : row.x) amax = kv::magnitude_or_nan(amax, x);
  amax = warp_max(amax);
  uint16_t bits = kv::scale_bits_from_amax(key ? kv::multiply(amax, kv::kKeyReach) : amax);
  if (key && bits != 0 && bits != kv::kHalfInfinity) {
    bits = kv::choose_key_scale(
        bits, [&](float s) { return warp_sum(kv::lane_residual(row.x, WarpRow<D>::kCount, s)); });
  }
  const float scale = kv::half_to_float(bits);
  const bool usable = bits != 0 && bits != kv::kHalfInfinity;
  EncodedRow<D> encoded;
  kv::RowSquares sums;
#pragma unroll
  for (int i = 0; i < WarpRow<D>::kCount; ++i) {
    const int8_t level = usable ? kv::quantise(row.x[i], scale, 0.0f) : int8_t{0};
    encoded.bytes[i] = kv::biased_level(level);
    kv::add_squares(sums, row.x[i], usable ? kv::dequantise(level, scale, 0.0f) : 0.0f);
  }
  sums.residual = warp_sum(sums.residual);
  sums.exact = warp_sum(sums.exact);
  sums.decoded = warp_sum(sums.decoded);
  if (bits == 0) {
    encoded.side = {0, 0};
  } else if (!usable) {
    encoded.side = {0, kv::kHalfInfinity};
  } else {
    encoded.side = {bits, key ? kv::key_bound(sums, scale, D, false, margins) : kv::value_bound(sums, D, margins)};
  }
  return encoded;
}

// A lower bound of |v| in fp16. NaN and what is too large count as the largest number.
template <int D>
__device__ __forceinline__ uint16_t norm_down(const WarpRow<D>& row) {
  double sum = 0.0;
#pragma unroll
  for (float x : row.x) sum += static_cast<double>(x) * x;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  const double norm = sqrt(sum) * (1.0 - 0x1p-30);
  return norm < kv::kHalfMax ? kv::half_down(static_cast<float>(norm) * (1.0f - 0x1p-22f)) : kv::kHalfMaxFinite;
}

// The first row of the batch in a page looks after the page's largest |v|, for all rows that follow it there.
template <int D>
__device__ __forceinline__ void keep_value_norm(const WriteParams& p, int row, int position, int sequence, int kv_head,
                                                int page) {
  const int page_tokens = p.cache.page_tokens;
  if (row != p.first_row[sequence] && position % page_tokens != 0) return;
  const int end = min(p.first_row[sequence + 1], row + page_tokens - position % page_tokens);
  uint16_t* norm = p.cache.value_norms(p.layer, kv_head) + page;
  uint16_t largest = position % page_tokens == 0 ? uint16_t{0} : *norm;
  for (int r = row; r < end; ++r) largest = max(largest, norm_down(exact_row<D>(p, p.value_at(r, kv_head))));
  if (lane_id() == 0) *norm = largest;
}

template <int D>
__device__ __forceinline__ void place_row(const EncodedRow<D>& key, const EncodedRow<D>& value, int token,
                                          std::byte* record) {
  constexpr int n = WarpRow<D>::kCount;
  uint8_t* k = reinterpret_cast<uint8_t*>(record);
  uint8_t* v = k + CertifiedRecord::v_payload(D);
  const int first = lane_id() * n;
  uint8_t* keys = k + kv::key_fragment_index(token, first, D);  // channels of one lane lie side by side
#pragma unroll
  for (int i = 0; i < n; ++i) {
    keys[i] = key.bytes[i];
    v[kv::value_fragment_index(token, first + i, D)] = value.bytes[i];
  }
  if (lane_id() != 0) return;
  const int side = kv::value_side_index(token);
  reinterpret_cast<uint16_t*>(record + CertifiedRecord::k_scales(D))[token] = key.side.scale;
  reinterpret_cast<uint16_t*>(record + CertifiedRecord::witness(D))[token] = key.side.bound;
  reinterpret_cast<uint16_t*>(record + CertifiedRecord::v_scales(D))[side] = value.side.scale;
  reinterpret_cast<uint16_t*>(record + CertifiedRecord::rho(D))[side] = value.side.bound;
}

template <int D>
__global__ void __launch_bounds__(kBlockThreads) write_certified_kernel(const __grid_constant__ WriteParams p) {
  const int64_t task = static_cast<int64_t>(blockIdx.x) * (kBlockThreads / 32) + threadIdx.x / 32;
  let_next_start();
  wait_for_inputs();
  if (task >= static_cast<int64_t>(p.num_tokens) * p.cache.num_kv_heads) return;
  const int row = static_cast<int>(task / p.cache.num_kv_heads);
  const int kv_head = static_cast<int>(task % p.cache.num_kv_heads);
  const int sequence = p.sequences[row], position = p.positions[row];
  const int page = p.pages_of(sequence)[position / p.cache.page_tokens];
  const int in_page = position % p.cache.page_tokens;
  WarpRow<D> key = exact_row<D>(p, p.key_at(row, kv_head)), value = exact_row<D>(p, p.value_at(row, kv_head));
  if (std::byte* exact = p.cache.exact_page(p.layer, kv_head, page); exact != nullptr) {
    store_row<D>(p.cache.dtype, exact, static_cast<int64_t>(in_page) * D, key);
    store_row<D>(p.cache.dtype, exact, static_cast<int64_t>(p.cache.page_tokens + in_page) * D, value);
  }
  const kv::RowTransform t = p.cache.transform(p.layer, kv_head);
  const kv::ArithmeticMargins margins = kv::transform_margins(t);
  const LaneTransform<D> lanes(t);
  transform_row(lanes, RowRole::kKey, key);
  transform_row(lanes, RowRole::kValue, value);
  place_row<D>(encode_row(key, true, margins), encode_row(value, false, margins), position % kTileTokens,
               p.cache.record(p.layer, page, kv_head, in_page / kTileTokens));
  keep_value_norm<D>(p, row, position, sequence, kv_head, page);
}

}  // namespace

void launch_kv_write(CudaContext& context, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                     ConstTensor qkv, const PagedKvView& cache) {
  const WriteParams p{cache,
                      batch.positions,
                      batch.sequences,
                      batch.first_row,
                      batch.page_table,
                      batch.page_table_stride,
                      batch.num_tokens,
                      shape.num_heads,
                      layer,
                      qkv.data,
                      qkv.dtype,
                      qkv.row_stride};
  if (!is_compressed(cache.format)) {
    const dim3 grid((batch.num_tokens + kTileTokens - 1) / kTileTokens, shape.num_kv_heads);
    return launch_dependent(context, write_exact_kernel, grid, dim3(kBlockThreads), 0, p);
  }
  const int64_t warps = static_cast<int64_t>(batch.num_tokens) * shape.num_kv_heads;
  const dim3 grid(static_cast<unsigned>((warps + kBlockThreads / 32 - 1) / (kBlockThreads / 32)));
  auto* kernel = shape.head_dim == 64 ? write_certified_kernel<64> : write_certified_kernel<128>;
  launch_dependent(context, kernel, grid, dim3(kBlockThreads), 0, p);
}

}  // namespace assay
