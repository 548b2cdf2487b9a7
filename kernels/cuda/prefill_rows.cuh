// A warp's 32 (row, head of the group) pairs and one block of 64 tokens: scores, softmax with the meter's sums,
// weighted sum of values. Shared by the sources of prefill_sources.cuh.
#pragma once

#include "kernels/cuda/prefill_sources.cuh"

namespace assay {

// Of weights that multiply values: bfloat16 weights of own rows are the coarsest.
template <class T>
constexpr float kPrefillWeightRounding = (sizeof(T) == 2 && __is_same(T, __nv_bfloat16) ? 0x1p-9f : 0x1p-11f) +
                                         0x1p-15f;

// What belongs to the rows of a block of threads, by pair.
struct PairTables {
  float score[kBlockRows];   // factor of scores, to logits in base 2
  float radius[kBlockRows];  // factor of witnesses, or of |k| of own rows
  int cell[kBlockRows];      // -1: not metered, or no such pair
};

// Sums of the meter, by [m * 2 + half] and thread: relative to `max`, the row's maximum when they were added to last.
// They lie in shared memory, for registers are short and few rows are metered.
struct MeterSlots {
  float b1[4][kPrefillThreads], b2[4][kPrefillThreads], value_error[4][kPrefillThreads];
  float radius_max[4][kPrefillThreads], max[4][kPrefillThreads];

  __device__ __forceinline__ void clear() {
    for (int r = 0; r < 4; ++r) {
      b1[r][threadIdx.x] = b2[r][threadIdx.x] = value_error[r][threadIdx.x] = radius_max[r][threadIdx.x] = 0.0f;
      max[r][threadIdx.x] = kNoLogit;
    }
  }
};

template <int D>
struct PrefillShared {
  alignas(128) uint8_t queries[kBlockRows * D * 2];
  alignas(128) uint8_t slots[2][2 * kBlockTokens * D * 2];
  BlockSide side;  // of own rows: `witness` holds |k|
  PairTables pairs;
  MeterSlots meter;
  uint32_t value_norm;
};

// Sums of a warp's 32 pairs; [m][half] is row m * 16 + half * 8 + group.
template <int D>
struct WarpRows {
  float out[2][D / 8][4];
  float max[2][2], weight[2][2];
  float scale_bound, lift;
  bool metered[2];  // any pair of the m-tile

  __device__ void clear(float first_lift) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (auto& tile : out[m]) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        max[m][h] = kNoLogit;
        weight[m][h] = 0.0f;
      }
      metered[m] = false;
    }
    scale_bound = 0.0f;
    lift = first_lift;
  }

  __device__ __forceinline__ void scale_outputs(int m, float factor0, float factor1) {
#pragma unroll
    for (auto& tile : out[m]) {
      tile[0] *= factor0;
      tile[1] *= factor0;
      tile[2] *= factor1;
      tile[3] *= factor1;
    }
  }
  __device__ __forceinline__ void change_lift(float new_lift) {
    const float factor = new_lift / lift;
    lift = new_lift;
#pragma unroll
    for (int m = 0; m < 2; ++m) scale_outputs(m, factor, factor);
  }

  // Largest of each row over its four lanes, and what it does to the sums.
  __device__ __forceinline__ void raise_max(int m, float (&largest)[2]) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(kAllLanes, largest[h], 1));
      largest[h] = fmaxf(max[m][h], fmaxf(largest[h], __shfl_xor_sync(kAllLanes, largest[h], 2)));
      factor[h] = largest[h] == max[m][h] ? 1.0f : exp2_fast(max[m][h] - largest[h]);
      max[m][h] = largest[h];
      weight[m][h] *= factor[h];
    }
    scale_outputs(m, factor[0], factor[1]);
  }
};

__device__ __forceinline__ int row_in_warp(int m, int h) {
  return m * 16 + h * 8 + static_cast<int>(threadIdx.x % 32 / 4);
}
__device__ __forceinline__ int pair_of(int m, int h) {
  return static_cast<int>(threadIdx.x / 32) * 32 + row_in_warp(m, h);
}

// Scores of the warp's pairs with a block's tokens, before any factor.
template <class Source, int D>
__device__ __forceinline__ void score_block(uint32_t queries, uint32_t slot, float (&s)[2][8][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (auto& tile : s[m]) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      load_matrices(a[m], RowMajor<D>::chunk_at(queries, warp * 32 + m * 16 + lane % 16, step * 2 + lane / 16));
    }
#pragma unroll
    for (int pair = 0; pair < kBlockTiles; ++pair) {
      uint32_t b[4];
      Source::load_k(slot, step, pair, b);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        using Element = typename Source::Element;
        multiply_tile<Element>(s[m][2 * pair], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
        multiply_tile<Element>(s[m][2 * pair + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
      }
    }
  }
}

// What turns raw scores into logits, and who sees what.
struct BlockView {
  int first_token;
  const int (&last_visible)[2][2];  // token, by row
  bool masked;                      // some row does not see all of the block
  bool stored;                      // keys and values have scales
};

template <int D>
__device__ __forceinline__ void apply_factors(const BlockView& view, const PairTables& pairs, const BlockSide& side,
                                              float (&s)[2][8][4]) {
  const int place = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const float row[2] = {pairs.score[pair_of(m, 0)], pairs.score[pair_of(m, 1)]};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 column = {1.0f, 1.0f};
      if (view.stored) column = *reinterpret_cast<const float2*>(&side.key_scale[n * 8 + 2 * place]);
      const int token = view.first_token + n * 8 + 2 * place;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] *= row[i / 2];
        if (view.stored) s[m][n][i] *= i % 2 == 0 ? column.x : column.y;
        if (view.masked && token + i % 2 > view.last_visible[m][i / 2]) s[m][n][i] = kNoLogit;
      }
    }
  }
}

// Adds a block's tokens to the meter of the rows of an m-tile. s: its logits; max: what weights are relative to.
__device__ __forceinline__ void add_radii(const BlockView& view, const PairTables& pairs, const BlockSide& side, int m,
                                          const float (&s)[8][4], const float (&max)[2], MeterSlots& slots) {
  const int place = threadIdx.x % 4, t = threadIdx.x;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int slot = m * 2 + h;
    const float radius = pairs.radius[pair_of(m, h)];
    const float decay = slots.max[slot][t] == kNoLogit ? 0.0f : exp2_fast(slots.max[slot][t] - max[h]);
    float b1 = slots.b1[slot][t] * decay, b2 = slots.b2[slot][t] * decay;
    float value_error = slots.value_error[slot][t] * decay, radius_max = slots.radius_max[slot][t];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float logit = s[i / 2][2 * h + i % 2];
      if (logit == kNoLogit) continue;
      const int column = i / 2 * 8 + 2 * place + i % 2;
      const float p = exp2_fast(logit - max[h]);
      const float c = radius * side.witness[column];
      const float growth = exp2_fast(c * kLog2E) - 1.0f, product = p * growth;
      b1 += product;
      b2 = fmaf(product, growth, b2);
      radius_max = fmaxf(radius_max, c);
      if (view.stored) value_error = fmaf(p, side.rho[column], value_error);
    }
    slots.b1[slot][t] = b1;
    slots.b2[slot][t] = b2;
    slots.value_error[slot][t] = value_error;
    slots.radius_max[slot][t] = radius_max;
    slots.max[slot][t] = max[h];
  }
}

// Weights in place of logits; sums of the meter.
template <int D, bool kMetered>
__device__ __forceinline__ void softmax_block(const BlockView& view, PrefillShared<D>& shared, WarpRows<D>& rows,
                                              float (&s)[2][8][4]) {
  const int place = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    float largest[2] = {kNoLogit, kNoLogit};
#pragma unroll
    for (const auto& tile : s[m]) {
      largest[0] = fmaxf(largest[0], fmaxf(tile[0], tile[1]));
      largest[1] = fmaxf(largest[1], fmaxf(tile[2], tile[3]));
    }
    const bool moved = largest[0] > rows.max[m][0] || largest[1] > rows.max[m][1];
    if (__any_sync(kAllLanes, moved)) rows.raise_max(m, largest);
    // A row that sees none of its tokens so far has no maximum yet.
    const float max[2] = {rows.max[m][0] == kNoLogit ? 0.0f : rows.max[m][0],
                          rows.max[m][1] == kNoLogit ? 0.0f : rows.max[m][1]};
    if (kMetered && rows.metered[m]) add_radii(view, shared.pairs, shared.side, m, s[m], max, shared.meter);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 scale = {rows.lift, rows.lift};
      if (view.stored) {
        const float2 stored = *reinterpret_cast<const float2*>(&shared.side.value_scale[n * 8 + 2 * place]);
        scale = {stored.x * rows.lift, stored.y * rows.lift};
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = exp2_fast(s[m][n][i] - max[i / 2]);
        rows.weight[m][i / 2] += p;
        s[m][n][i] = p * (i % 2 == 0 ? scale.x : scale.y);
      }
    }
  }
}

template <class Source, int D>
__device__ __forceinline__ void accumulate_block(uint32_t slot, const float (&s)[2][8][4], WarpRows<D>& rows) {
  using Element = typename Source::Element;
#pragma unroll
  for (int step = 0; step < kBlockTiles; ++step) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const float(&low)[4] = s[m][2 * step], (&high)[4] = s[m][2 * step + 1];
      a[m][0] = pack_pair<Element>(low[0], low[1]);
      a[m][1] = pack_pair<Element>(low[2], low[3]);
      a[m][2] = pack_pair<Element>(high[0], high[1]);
      a[m][3] = pack_pair<Element>(high[2], high[3]);
    }
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      uint32_t b[4];
      Source::load_v(slot, step, pair, b);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply_tile<Element>(rows.out[m][2 * pair], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
        multiply_tile<Element>(rows.out[m][2 * pair + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
      }
    }
  }
}

template <class Source, int D, bool kMetered>
__device__ __forceinline__ void attend_block(const BlockView& view, uint32_t slot, PrefillShared<D>& shared,
                                             WarpRows<D>& rows) {
  float s[2][8][4];
  score_block<Source, D>(shared_address(shared.queries), slot, s);
  apply_factors<D>(view, shared.pairs, shared.side, s);
  softmax_block<D, kMetered>(view, shared, rows, s);
  accumulate_block<Source, D>(slot, s, rows);
}

}  // namespace assay
