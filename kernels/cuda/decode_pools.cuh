// What a decode warp does with one 16-token record of a pool: scores of up to 8 query heads, and their weighted sum of
// values. Fragments: K and V^T are the A operand (rows = tokens, channels), heads the columns; lane (group, place)
// holds tokens group and group + 8 of heads 2 place and 2 place + 1.
#pragma once

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/kv/fragment_order.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

// ---- Certified records: bytes become halves in registers; scales are applied to scores and weights in float.

template <int D>
struct CertifiedTiles {
  using Element = __half;
  static constexpr int kDim = D;
  static constexpr bool kCompressed = true;
  static constexpr int kRecordBytes = 2 * kTileTokens * D + 4 * 2 * kTileTokens;
  static constexpr int kQueryParts = 2;  // high and low halves
  static constexpr int kRowTiles = D / 16;

  struct Query {
    uint32_t high[D / 16][2], low[D / 16][2];
  };

  // rows: [kQueryParts][kLaneHeads][D] in shared memory.
  static __device__ __forceinline__ void load_query(const uint16_t* rows, Query& q) {
    const int group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
      const int channel = s / 2 * 32 + place * 8 + s % 2 * 4;
      const uint2 high = *reinterpret_cast<const uint2*>(rows + group * D + channel);
      const uint2 low = *reinterpret_cast<const uint2*>(rows + (kLaneHeads + group) * D + channel);
      q.high[s][0] = high.x;
      q.high[s][1] = high.y;
      q.low[s][0] = low.x;
      q.low[s][1] = low.y;
    }
  }

  static __device__ __forceinline__ void score(const uint8_t* record, const Query& q, float (&scores)[4]) {
    const uint4* pieces = reinterpret_cast<const uint4*>(record) + threadIdx.x % 32;
    float high[4] = {}, low[4] = {};
#pragma unroll
    for (int block = 0; block < D / 32; ++block) {
      const uint4 piece = pieces[block * 32];
      uint32_t a0, a1, a2, a3;
      levels_from_bytes(piece.x, a0, a2);
      levels_from_bytes(piece.y, a1, a3);
      multiply_tile<__half>(high, a0, a1, a2, a3, q.high[2 * block][0], q.high[2 * block][1]);
      multiply_tile<__half>(low, a0, a1, a2, a3, q.low[2 * block][0], q.low[2 * block][1]);
      levels_from_bytes(piece.z, a0, a2);
      levels_from_bytes(piece.w, a1, a3);
      multiply_tile<__half>(high, a0, a1, a2, a3, q.high[2 * block + 1][0], q.high[2 * block + 1][1]);
      multiply_tile<__half>(low, a0, a1, a2, a3, q.low[2 * block + 1][0], q.low[2 * block + 1][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = high[i] + low[i];
  }

  // weights: pairs of halves, tokens 2 place.. of head group. `visible` tokens count; the others' weights are zero, and
  // any byte is a finite level.
  static __device__ __forceinline__ void accumulate(const uint8_t* record, uint32_t weights0, uint32_t weights1, int,
                                                    float (&out)[kRowTiles][4]) {
    const uint4* pieces = reinterpret_cast<const uint4*>(record + kTileTokens * D) + threadIdx.x % 32;
#pragma unroll
    for (int block = 0; block < D / 32; ++block) {
      const uint4 piece = pieces[block * 32];
      uint32_t a0, a1, a2, a3;
      levels_from_bytes(piece.x, a0, a2);
      levels_from_bytes(piece.y, a1, a3);
      multiply_tile<__half>(out[2 * block], a0, a1, a2, a3, weights0, weights1);
      levels_from_bytes(piece.z, a0, a2);
      levels_from_bytes(piece.w, a1, a3);
      multiply_tile<__half>(out[2 * block + 1], a0, a1, a2, a3, weights0, weights1);
    }
  }

  // Channel of out[tile][i] in lane group `group`.
  static __device__ __forceinline__ int channel(int tile, int i, int group) {
    return tile * 16 + group + i / 2 * 8;
  }

  static __device__ __forceinline__ float half_at(const uint8_t* record, int64_t offset, int index) {
    return __half2float(reinterpret_cast<const __half*>(record + offset)[index]);
  }
};

// ---- Exact records: K [D][16], V [16][D] of T.

template <class T, int D>
struct ExactTiles {
  using Element = T;
  static constexpr int kDim = D;
  static constexpr bool kCompressed = false;
  static constexpr int kRecordBytes = 2 * kTileTokens * D * 2;
  static constexpr int kQueryParts = 1;
  static constexpr int kRowTiles = D / 16;

  struct Query {
    uint32_t rows[D / 16][2];
  };

  static __device__ __forceinline__ void load_query(const uint16_t* rows, Query& q) {
    const int group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < D / 16; ++s) {
      const uint16_t* from = rows + group * D + s * 16 + 2 * place;
      q.rows[s][0] = *reinterpret_cast<const uint32_t*>(from);
      q.rows[s][1] = *reinterpret_cast<const uint32_t*>(from + 8);
    }
  }

  static __device__ __forceinline__ void score(const uint8_t* record, const Query& q, float (&scores)[4]) {
    const int lane = threadIdx.x % 32;
    const uint32_t from = shared_address(record) + ((lane / 16 * 8 + lane % 8) * kTileTokens + lane / 8 % 2 * 8) * 2;
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int s = 0; s < D / 16; s += 2) {
      uint32_t a[4];
      load_matrices_transposed(a, from + s * 16 * kTileTokens * 2);
      multiply_tile<T>(even, a[0], a[1], a[2], a[3], q.rows[s][0], q.rows[s][1]);
      load_matrices_transposed(a, from + (s + 1) * 16 * kTileTokens * 2);
      multiply_tile<T>(odd, a[0], a[1], a[2], a[3], q.rows[s + 1][0], q.rows[s + 1][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = even[i] + odd[i];
  }

  // Eight channels of one token; zeros for one that does not count (what lies there may be NaN).
  static __device__ __forceinline__ void load_values(const uint8_t* values, int token, int chunk, int visible,
                                                     uint32_t (&words)[4]) {
    const uint4 v = reinterpret_cast<const uint4*>(values)[token * (D / 8) + chunk];
    const bool counts = token < visible;
    words[0] = counts ? v.x : 0u;
    words[1] = counts ? v.y : 0u;
    words[2] = counts ? v.z : 0u;
    words[3] = counts ? v.w : 0u;
  }

  // Of two tokens' words: the pairs of one channel, even and odd.
  static __device__ __forceinline__ uint32_t pair_of(uint32_t first, uint32_t second, bool odd) {
    return __byte_perm(first, second, odd ? 0x7632 : 0x5410);
  }

  static __device__ __forceinline__ void accumulate(const uint8_t* record, uint32_t weights0, uint32_t weights1,
                                                    int visible, float (&out)[kRowTiles][4]) {
    const int group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    const uint8_t* values = record + kTileTokens * D * 2;
    uint32_t low[4][4], high[4][4];  // [token][word] of this lane's two chunks of 8 channels
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const int token = 2 * place + t % 2 + t / 2 * 8;
      load_values(values, token, group, visible, low[t]);
      if constexpr (D == 128) load_values(values, token, group + 8, visible, high[t]);
    }
    if constexpr (D == 128) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int w = e / 2;
        const bool odd = e % 2 != 0;
        multiply_tile<T>(out[e], pair_of(low[0][w], low[1][w], odd), pair_of(high[0][w], high[1][w], odd),
                         pair_of(low[2][w], low[3][w], odd), pair_of(high[2][w], high[3][w], odd), weights0, weights1);
      }
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int w = e / 2;
        const bool odd = e % 2 != 0;
        multiply_tile<T>(out[e], pair_of(low[0][w], low[1][w], odd), pair_of(low[0][w + 2], low[1][w + 2], odd),
                         pair_of(low[2][w], low[3][w], odd), pair_of(low[2][w + 2], low[3][w + 2], odd), weights0,
                         weights1);
      }
    }
  }

  static __device__ __forceinline__ int channel(int tile, int i, int group) {
    if constexpr (D == 128) return group * 8 + tile + i / 2 * 64;
    return group * 8 + tile + i / 2 * 4;
  }
};

}  // namespace assay
