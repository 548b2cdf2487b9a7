// Where a prefill block's K and V come from, 64 tokens at a time: how they reach shared memory and how a warp reads
// them as B fragments (columns = tokens for K, channels for V). Every source swizzles or permutes so that these reads
// meet no bank twice.
//
//   start(p, block, slot)   asynchronous copies of a block of tokens into a place
//   load_k(slot, s, pair)   channels of step s (16) x tokens [16 pair, 16 pair + 16): {n0.b0, n0.b1, n1.b0, n1.b1}
//   load_v(slot, s, pair)   tokens of step s (16) x channels [16 pair, 16 pair + 16)
#pragma once

#include "kernels/cuda/decode_range.cuh"
#include "kernels/cuda/warp_row.cuh"

namespace assay {

constexpr int kPrefillWarps = 4;
constexpr int kPrefillThreads = kPrefillWarps * 32;
constexpr int kBlockTokens = 64;
constexpr int kBlockTiles = kBlockTokens / kTileTokens;
constexpr int kBlockRows = 128;  // (row, head of the group) pairs of a block of threads

struct PrefillParams {
  PagedKvView cache;
  int32_t layer;
  const int32_t* positions;
  const int32_t* first_row;
  const int32_t* page_table;
  int32_t page_table_stride;
  int32_t first_sequence;
  int32_t num_heads, num_kv_heads, group;
  const void* qkv;
  DType dtype;  // of qkv and out
  int64_t row_stride;
  void* out;
  int64_t out_stride;
  float softmax_scale;
  kv::MeterView meter;
};

// The part of a slice that a block of threads works on.
struct PrefillTask {
  int kv_head;
  int row;    // of the batch, first of the slice
  int rows;   // of the slice
  int first;  // position of the slice's first row
  int first_pair;
  const int32_t* pages;

  __device__ int pairs(int group) const { return min(kBlockRows, rows * group - first_pair); }
};

__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(chunk ^ (row & 7));
}

// V rows [64][D], and K rows where they lie token by token: chunk c of row t at c ^ (t & 7).
template <int D>
struct RowMajor {
  static constexpr int kChunks = D / 8;

  static __device__ __forceinline__ uint32_t chunk_at(uint32_t base, int row, int chunk) {
    return base + (row * kChunks + swizzled(row, chunk)) * 16;
  }
  // K: tokens are rows.
  static __device__ __forceinline__ void load_k(uint32_t base, int s, int pair, uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    load_matrices(b, chunk_at(base, pair * 16 + lane / 16 * 8 + lane % 8, s * 2 + lane / 8 % 2));
  }
  static __device__ __forceinline__ void load_v(uint32_t base, int s, int pair, uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32;
    load_matrices_transposed(b, chunk_at(base, s * 16 + lane % 16, pair * 2 + lane / 16));
  }
};

// Rows of the slice itself, from qkv.
template <class T, int D>
struct OwnSource {
  using Element = T;
  static constexpr uint32_t kBytes = 2 * kBlockTokens * D * 2;

  static __device__ __forceinline__ void start(const PrefillParams& p, const PrefillTask& task, int block,
                                               uint32_t slot) {
    constexpr int kChunks = D / 8;
    const T* qkv = static_cast<const T*>(p.qkv);
    const int64_t k_column = static_cast<int64_t>(p.num_heads + task.kv_head) * D;
    const int64_t v_column = k_column + static_cast<int64_t>(p.num_kv_heads) * D;
#pragma unroll 4
    for (int e = threadIdx.x; e < kBlockTokens * kChunks; e += kPrefillThreads) {
      const int t = e / kChunks, chunk = e % kChunks, own = block * kBlockTokens + t;
      const bool there = own < task.rows;
      const T* row = qkv + (task.row + (there ? own : 0)) * p.row_stride + chunk * 8;
      start_copy_16(RowMajor<D>::chunk_at(slot, t, chunk), row + k_column, there);
      start_copy_16(RowMajor<D>::chunk_at(slot + kBlockTokens * D * 2, t, chunk), row + v_column, there);
    }
  }
  static __device__ __forceinline__ void load_k(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    RowMajor<D>::load_k(slot, s, pair, b);
  }
  static __device__ __forceinline__ void load_v(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    RowMajor<D>::load_v(slot + kBlockTokens * D * 2, s, pair, b);
  }
};

// Records of the exact pool; a warp copies one of the block's four.
template <class T, int D>
struct RecordSource {
  using Element = T;
  static constexpr uint32_t kBytes = 2 * kBlockTokens * D * 2;
  static constexpr uint32_t kTileBytes = kTileTokens * D * 2;  // of K, of V

  // K [D][16]: the two chunks of a channel change places in every second group of four channels.
  static __device__ __forceinline__ uint32_t key_chunk(uint32_t tile, int chunk) {
    return tile + (chunk ^ (chunk >> 3 & 1)) * 16;
  }

  static __device__ __forceinline__ void start(const PrefillParams& p, const PrefillTask& task, int block,
                                               uint32_t slot) {
    constexpr int kChunks = D / 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int position = block * kBlockTokens + warp * kTileTokens;
    const int count = task.first + task.rows - position;  // tokens of the record that are the sequence's
    const std::byte* record = p.cache.base;
    if (count > 0) record = p.cache.record_of(p.layer, task.pages, task.kv_head, position);
    const uint32_t keys = slot + warp * kTileBytes, values = slot + kBlockTokens * D * 2 + warp * kTileBytes;
#pragma unroll 4
    for (int c = lane; c < 2 * D; c += 32) start_copy_16(key_chunk(keys, c), record + c * 16, count > 0);
#pragma unroll 4
    for (int c = lane; c < 2 * D; c += 32) {
      const int t = c / kChunks;
      start_copy_16(values + (t * kChunks + swizzled(t, c % kChunks)) * 16, record + kTileBytes + c * 16, t < count);
    }
  }
  static __device__ __forceinline__ void load_k(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    const int lane = threadIdx.x % 32, channel = s * 16 + lane % 16;
    load_matrices_transposed(b, key_chunk(slot + pair * kTileBytes, channel * 2 + lane / 16));
  }
  static __device__ __forceinline__ void load_v(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    RowMajor<D>::load_v(slot + kBlockTokens * D * 2, s, pair, b);
  }
};

// Side numbers of a block of stored tokens.
struct BlockSide {
  float key_scale[kBlockTokens], witness[kBlockTokens], value_scale[kBlockTokens], rho[kBlockTokens];
  float largest_scale[kPrefillWarps];
};

// Certified records: raw bytes arrive in `raw`, are unpacked to levels as halves in fragment order.
template <int D>
struct PrefixSource {
  using Element = __half;
  static constexpr uint32_t kRecordBytes = 2 * kTileTokens * D + 128;
  static constexpr uint32_t kRawBytes = kBlockTiles * kRecordBytes;
  static constexpr uint32_t kTileBytes = kTileTokens * D * 2;
  static constexpr uint32_t kBytes = 2 * kBlockTiles * kTileBytes;
  // A query operand of one half: its rounding meets the decoded row (certificate.md, section 2).
  static constexpr float kQueryRounding = 0x1p-11f * (1.0f + 0x1p-9f);

  static __device__ __forceinline__ void start(const PrefillParams& p, const PrefillTask& task, int block,
                                               uint32_t raw) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int position = block * kBlockTokens + warp * kTileTokens;
    const bool there = position < task.first;
    const std::byte* record = p.cache.base;
    if (there) record = p.cache.record_of(p.layer, task.pages, task.kv_head, position);
#pragma unroll 4
    for (uint32_t c = lane; c < kRecordBytes / 16; c += 32) {
      start_copy_16(raw + warp * kRecordBytes + c * 16, record + c * 16, there);
    }
  }

  // One piece of 16 bytes -> two pieces in the order load_k and load_v give.
  static __device__ __forceinline__ void unpack_piece(const uint4& piece, uint4* first, uint4* second) {
    uint4 a, b;
    levels_from_bytes(piece.x, a.x, a.y);
    levels_from_bytes(piece.y, a.z, a.w);
    levels_from_bytes(piece.z, b.x, b.y);
    levels_from_bytes(piece.w, b.z, b.w);
    *first = a;
    *second = b;
  }

  // Sum of squares of four biased bytes.
  static __device__ __forceinline__ int squares(uint32_t bytes, int sum) {
    const int levels = static_cast<int>(bytes ^ 0x80808080u);
    return __dp4a(levels, levels, sum);
  }

  // A warp unpacks its record of the block. `metered`: witnesses take up the rounding of the query.
  static __device__ void unpack(const PrefillTask& task, int block, const uint8_t* raw, uint8_t* slot, bool metered,
                                BlockSide& side) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint8_t* record = raw + warp * kRecordBytes;
    const uint4* from = reinterpret_cast<const uint4*>(record) + lane;
    uint4* keys = reinterpret_cast<uint4*>(slot + warp * kTileBytes) + lane;
    uint4* values = reinterpret_cast<uint4*>(slot + kBlockTiles * kTileBytes + warp * kTileBytes) + lane;
    int squares_low = 0, squares_high = 0;  // of tokens group and group + 8
#pragma unroll
    for (int b = 0; b < D / 32; ++b) {
      const uint4 k = from[b * 32], v = from[D + b * 32];
      if (metered) {
        squares_low = squares(k.z, squares(k.x, squares_low));
        squares_high = squares(k.w, squares(k.y, squares_high));
      }
      unpack_piece(k, keys + 2 * b * 32, keys + (2 * b + 1) * 32);
      unpack_piece(v, values + 2 * b * 32, values + (2 * b + 1) * 32);
    }
    unpack_side(record, task.first - block * kBlockTokens - warp * kTileTokens, squares_low, squares_high, metered,
                side);
  }

  static __device__ __forceinline__ void unpack_side(const uint8_t* record, int count, int squares_low,
                                                     int squares_high, bool metered, BlockSide& side) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      squares_low += __shfl_xor_sync(kAllLanes, squares_low, step);
      squares_high += __shfl_xor_sync(kAllLanes, squares_high, step);
    }
    const int low = __shfl_sync(kAllLanes, squares_low, lane % 8 * 4);
    const int high = __shfl_sync(kAllLanes, squares_high, lane % 8 * 4);
    float value_scale = 0.0f;
    if (lane < kTileTokens) {
      const int t = warp * kTileTokens + lane, v = kv::value_side_index(lane);
      const auto half = [&](int array, int i) {
        return CertifiedTiles<D>::half_at(record, 2 * kTileTokens * D + 32 * array, i);
      };
      const bool there = lane < count;
      const float scale = there ? half(0, lane) : 0.0f;
      value_scale = there ? half(2, v) : 0.0f;
      float witness = there ? half(1, lane) : 0.0f;
      if (metered) witness += kQueryRounding * scale * sqrtf(static_cast<float>(lane < 8 ? low : high));
      side.key_scale[t] = scale;
      side.witness[t] = witness;
      side.value_scale[t] = value_scale;
      side.rho[t] = there ? half(3, v) : 0.0f;
    }
    value_scale = warp_max(value_scale);
    if (lane == 0) side.largest_scale[warp] = value_scale;
  }

  static __device__ __forceinline__ void load_piece(uint32_t address, uint32_t (&b)[4]) {
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(address)
                 : "memory");
  }
  static __device__ __forceinline__ void load_k(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    load_piece(slot + pair * kTileBytes + (s * 32 + threadIdx.x % 32) * 16, b);
  }
  static __device__ __forceinline__ void load_v(uint32_t slot, int s, int pair, uint32_t (&b)[4]) {
    load_piece(slot + kBlockTiles * kTileBytes + s * kTileBytes + (pair * 32 + threadIdx.x % 32) * 16, b);
  }
};

}  // namespace assay
