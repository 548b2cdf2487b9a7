// Prefill attention: 128 (row, head of the group) pairs a block of threads, 32 a warp, 64 tokens at a time, a running
// softmax in registers. Exact pool: every row is read from the cache. Compressed pool: first the stored prefix in the
// rotated domain, as levels with their scales apart; the sums are rotated back in registers; then the slice's own rows.
#include <cmath>

#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/prefill_sources.cuh"

namespace assay {
namespace {

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

template <int D>
struct PrefillShared {
  alignas(128) uint8_t queries[kBlockRows * D * 2];
  alignas(128) uint8_t slots[2][2 * kBlockTokens * D * 2];
  BlockSide side;  // of own rows: `witness` holds |k|
  PairTables pairs;
  uint32_t value_norm;
};

// Sums of a warp's 32 pairs; [m][half] is row m * 16 + half * 8 + group.
template <int D>
struct WarpRows {
  float out[2][D / 8][4];
  float max[2][2], weight[2][2];
  float b1[2][2], b2[2][2], value_error[2][2], radius_max[2][2];
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
        weight[m][h] = b1[m][h] = b2[m][h] = value_error[m][h] = radius_max[m][h] = 0.0f;
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
      b1[m][h] *= factor[h];
      b2[m][h] *= factor[h];
      value_error[m][h] *= factor[h];
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

// Weights in place of logits; sums of the meter.
template <int D, bool kMetered>
__device__ __forceinline__ void softmax_block(const BlockView& view, const PairTables& pairs, const BlockSide& side,
                                              WarpRows<D>& rows, float (&s)[2][8][4]) {
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
    const bool metered = kMetered && rows.metered[m];
    float radius[2] = {};
    if (metered) {
      radius[0] = pairs.radius[pair_of(m, 0)];
      radius[1] = pairs.radius[pair_of(m, 1)];
    }
    // A row that sees none of its tokens so far has no maximum yet.
    const float max[2] = {rows.max[m][0] == kNoLogit ? 0.0f : rows.max[m][0],
                          rows.max[m][1] == kNoLogit ? 0.0f : rows.max[m][1]};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int column = n * 8 + 2 * place;
      float2 scale = {rows.lift, rows.lift};
      if (view.stored) {
        const float2 stored = *reinterpret_cast<const float2*>(&side.value_scale[column]);
        scale = {stored.x * rows.lift, stored.y * rows.lift};
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = exp2_fast(s[m][n][i] - max[i / 2]);
        rows.weight[m][i / 2] += p;
        if (metered && s[m][n][i] != kNoLogit) {
          const float c = radius[i / 2] * side.witness[column + i % 2];
          const float growth = exp2_fast(c * kLog2E) - 1.0f, product = p * growth;
          rows.b1[m][i / 2] += product;
          rows.b2[m][i / 2] = fmaf(product, growth, rows.b2[m][i / 2]);
          rows.radius_max[m][i / 2] = fmaxf(rows.radius_max[m][i / 2], c);
          if (view.stored) rows.value_error[m][i / 2] = fmaf(p, side.rho[column + i % 2], rows.value_error[m][i / 2]);
        }
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
  softmax_block<D, kMetered>(view, shared.pairs, shared.side, rows, s);
  accumulate_block<Source, D>(slot, s, rows);
}

// ---- Rows that lie in memory as elements: the exact pool, or the slice's own

template <class T, int D>
__device__ __forceinline__ int64_t query_at(const PrefillParams& p, const PrefillTask& task, int pair) {
  const int index = task.first_pair + pair;
  return (task.row + index / p.group) * p.row_stride +
         static_cast<int64_t>(task.kv_head * p.group + index % p.group) * D;
}

template <class T, int D>
__device__ __forceinline__ void copy_queries(const PrefillParams& p, const PrefillTask& task, uint8_t* queries) {
  constexpr int kChunks = D / 8;
  const uint32_t to = shared_address(queries);
  const int pairs = task.pairs(p.group);
#pragma unroll 4
  for (int e = threadIdx.x; e < kBlockRows * kChunks; e += kPrefillThreads) {
    const int pair = e / kChunks, chunk = e % kChunks;
    const bool there = pair < pairs;
    const T* from = static_cast<const T*>(p.qkv) + query_at<T, D>(p, task, there ? pair : 0) + chunk * 8;
    start_copy_16(RowMajor<D>::chunk_at(to, pair, chunk), from, there);
  }
}

// Factor of |k| for the radius of own rows: the rounding of their float sum alone.
template <int D>
__device__ void fill_own_factors(const PrefillParams& p, PrefillShared<D>& shared, bool metered) {
  const int pair = threadIdx.x;
  shared.pairs.score[pair] = p.softmax_scale * kLog2E;
  if (!metered) return;
  float squares = 0.0f;
  for (int chunk = 0; chunk < D / 8; ++chunk) {
    const uint32_t at = RowMajor<D>::chunk_at(0, pair, chunk);
    for (int i = 0; i < 8; ++i) {
      const float x = load_element(p.dtype, shared.queries + at, i);
      squares = fmaf(x, x, squares);
    }
  }
  shared.pairs.radius[pair] = kv::bypass_radius(p.softmax_scale, kv::norm_up_from_squares(squares, D), D);
}

// |k| of a block of own rows, rounded up, for the meter; two threads a row.
template <int D>
__device__ __forceinline__ void fill_own_norms(const PrefillParams& p, const uint8_t* keys, BlockSide& side) {
  const int t = threadIdx.x / 2;
  float squares = 0.0f;
  for (int chunk = threadIdx.x % 2; chunk < D / 8; chunk += 2) {
    const uint32_t at = RowMajor<D>::chunk_at(0, t, chunk);
    for (int i = 0; i < 8; ++i) {
      const float x = load_element(p.dtype, keys + at, i);
      squares = fmaf(x, x, squares);
    }
  }
  squares += __shfl_xor_sync(kAllLanes, squares, 1);
  if (threadIdx.x % 2 == 0) side.witness[t] = kv::norm_up_from_squares(squares, D);
}

// All blocks of rows that lie as elements, with a causal mask; tokens count from `base`, the position of token 0 as the
// limits see it. `metered`: the block of threads has metered rows (own rows only).
template <class Source, int D, bool kMetered>
__device__ void attend_elements(const PrefillParams& p, const PrefillTask& task, const int (&last_visible)[2][2],
                                int first_limit, int last_limit, bool metered, PrefillShared<D>& shared,
                                WarpRows<D>& rows) {
  const int blocks = last_limit / kBlockTokens + 1;
  Source::start(p, task, 0, shared_address(shared.slots[0]));
  commit_copies();
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) Source::start(p, task, block + 1, shared_address(shared.slots[(block + 1) % 2]));
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    if (kMetered && metered) {
      fill_own_norms<D>(p, shared.slots[block % 2], shared.side);
      __syncthreads();
    }
    const BlockView view{block * kBlockTokens, last_visible, (block + 1) * kBlockTokens - 1 > first_limit, false};
    attend_block<Source, D, kMetered>(view, shared_address(shared.slots[block % 2]), shared, rows);
    __syncthreads();
  }
}

// ---- The stored prefix of a compressed pool

// Place of a channel in a query row whose fragments meet K in fragment order.
__device__ __forceinline__ int fragment_place(int channel) {
  return (channel / 32 * 2 + (channel >> 2 & 1)) * 16 + (channel >> 1 & 1) * 8 + channel % 32 / 8 * 2 + (channel & 1);
}

// The transformed queries as halves, and their factors; each warp its own pairs.
template <int D>
__device__ void transform_queries(const PrefillParams& p, const PrefillTask& task, PrefillShared<D>& shared) {
  constexpr int n = WarpRow<D>::kCount;
  const int warp = threadIdx.x / 32, pairs = task.pairs(p.group);
  const kv::RowTransform t = p.cache.transform(p.layer, task.kv_head);
  const kv::ArithmeticMargins margins = kv::transform_margins(t);
  const LaneTransform<D> lanes(t);
  for (int pair = warp * 32; pair < warp * 32 + 32; ++pair) {
    WarpRow<D> row{};
    float scale = 1.0f, norm = 0.0f;
    if (pair < pairs) {
      row = load_row<D>(p.dtype, p.qkv, query_at<__half, D>(p, task, pair));
      transform_row(lanes, RowRole::kQuery, row);
      norm = kv::norm_up_from_squares(square_sum(row), D);
      scale = kv::query_scale(norm);
    }
#pragma unroll
    for (int i = 0; i < n; i += 2) {
      const int place = fragment_place(lane_id() * n + i);
      const uint32_t at = RowMajor<D>::chunk_at(0, pair, place / 8) + place % 8 * 2;
      *reinterpret_cast<uint32_t*>(shared.queries + at) = pack_pair<__half>(row.x[i] * scale, row.x[i + 1] * scale);
    }
    if (lane_id() == 0) {
      shared.pairs.score[pair] = p.softmax_scale * kLog2E / scale;
      shared.pairs.radius[pair] = kv::witness_factor(p.softmax_scale, norm, margins);
    }
  }
}

template <int D>
__device__ __forceinline__ void follow_scales(const BlockSide& side, WarpRows<D>& rows) {
  float largest = 0.0f;
#pragma unroll
  for (float x : side.largest_scale) largest = fmaxf(largest, x);
  if (!(largest > rows.scale_bound)) return;
  const uint32_t exponent = (__float_as_uint(largest) >> 23) + 1;
  rows.scale_bound = __uint_as_float(exponent << 23);
  rows.change_lift(__uint_as_float((254u - exponent + 15u) << 23));  // 2^15 / scale_bound
}

// R^T on the sums of every row. Channel n * 8 + 2 place + i % 2: two of seven bits are lanes.
template <int D>
__device__ void rotate_outputs_back(const float* signs, WarpRows<D>& rows) {
  const int place = threadIdx.x % 4;
  const float norm = kv::rotation_norm(D);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int h = 0; h < 4; h += 2) {
      float x[D / 4];  // [n][2]
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        x[2 * n] = rows.out[m][n][h] + rows.out[m][n][h + 1];
        x[2 * n + 1] = rows.out[m][n][h] - rows.out[m][n][h + 1];
      }
#pragma unroll
      for (int step = 1; step < 4; step *= 2) {
#pragma unroll
        for (float& value : x) {
          const float other = __shfl_xor_sync(kAllLanes, value, step);
          value = (place & step) != 0 ? other - value : value + other;
        }
      }
#pragma unroll
      for (int width = 1; width < D / 8; width *= 2) {
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          if ((n & width) != 0) continue;
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float a = x[2 * n + i], b = x[2 * (n + width) + i];
            x[2 * n + i] = a + b;
            x[2 * (n + width) + i] = a - b;
          }
        }
      }
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        rows.out[m][n][h] = x[2 * n] * norm * signs[n * 8 + 2 * place];
        rows.out[m][n][h + 1] = x[2 * n + 1] * norm * signs[n * 8 + 2 * place + 1];
      }
    }
  }
}

template <int D, bool kMetered>
__device__ void attend_prefix(const PrefillParams& p, const PrefillTask& task, bool metered, PrefillShared<D>& shared,
                              WarpRows<D>& rows) {
  using Source = PrefixSource<D>;
  uint8_t* raw = shared.slots[1];
  const int last = task.first - 1, blocks = last / kBlockTokens + 1;
  const int last_visible[2][2] = {{last, last}, {last, last}};
  Source::start(p, task, 0, shared_address(raw));
  commit_copies();
  transform_queries<D>(p, task, shared);
  for (int block = 0; block < blocks; ++block) {
    wait_copies<0>();
    __syncthreads();
    Source::unpack(task, block, raw, shared.slots[0], kMetered && metered, shared.side);
    __syncthreads();
    if (block + 1 < blocks) Source::start(p, task, block + 1, shared_address(raw));
    commit_copies();
    follow_scales(shared.side, rows);
    const BlockView view{block * kBlockTokens, last_visible, (block + 1) * kBlockTokens > task.first, true};
    attend_block<Source, D, kMetered>(view, shared_address(shared.slots[0]), shared, rows);
  }
  __syncthreads();
  rows.change_lift(1.0f);
  if (p.cache.tables.signs != nullptr) rotate_outputs_back<D>(p.cache.tables.signs, rows);
}

// Largest |v| of the stored pages, rounded down.
template <int D>
__device__ void find_value_norm(const PrefillParams& p, const PrefillTask& task, PrefillShared<D>& shared) {
  if (threadIdx.x == 0) shared.value_norm = 0;
  __syncthreads();
  const uint16_t* norms = p.cache.value_norms(p.layer, task.kv_head);
  uint32_t largest = 0;
  for (int i = threadIdx.x; i * p.cache.page_tokens < task.first; i += kPrefillThreads) {
    largest = max(largest, static_cast<uint32_t>(norms[task.pages[i]]));
  }
  atomicMax(&shared.value_norm, largest);
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

template <class T, int D>
__device__ void store_cells(const PrefillParams& p, const PrefillTask& task, const PrefillShared<D>& shared,
                            const WarpRows<D>& rows) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (!rows.metered[m]) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int pair = pair_of(m, h), index = shared.pairs.cell[pair];
      kv::MeterCell cell;
      cell.certain.logit_max = rows.max[m][h] * kLn2;
      cell.certain.weight = quad_sum(rows.weight[m][h]);
      cell.certain.b1 = quad_sum(rows.b1[m][h]);
      cell.certain.b2 = quad_sum(rows.b2[m][h]);
      cell.certain.value_error = quad_sum(rows.value_error[m][h]);
      cell.certain.radius_max = quad_max(rows.radius_max[m][h]);
      cell.conditional = cell.certain;
      cell.compressed_tokens = task.first;
      cell.value_norm_low = task.first > 0 ? kv::half_to_float(static_cast<uint16_t>(shared.value_norm)) : 0.0f;
      cell.serial_terms = (task.first + task.rows) / 4 + 2 * kBlockTokens;
      cell.weight_rounding = kPrefillWeightRounding<T>;
      if (index < 0 || threadIdx.x % 4 != 0) continue;
      const int head = task.kv_head * p.group + (task.first_pair + pair) % p.group;
      p.meter.cells[static_cast<int64_t>(index) * p.meter.num_heads + head] = cell;
    }
  }
}

template <class T, int D>
__device__ void store_outputs(const PrefillParams& p, const PrefillTask& task, const WarpRows<D>& rows) {
  const int place = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float inverse = 1.0f / (quad_sum(rows.weight[m][h]) * rows.lift);
      const int pair = pair_of(m, h), index = task.first_pair + pair;
      if (pair >= task.pairs(p.group)) continue;
      T* to = static_cast<T*>(p.out) + (task.row + index / p.group) * p.out_stride +
              static_cast<int64_t>(task.kv_head * p.group + index % p.group) * D + 2 * place;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            pack_pair<T>(rows.out[m][n][2 * h] * inverse, rows.out[m][n][2 * h + 1] * inverse);
      }
    }
  }
}

// The task of this block; false: none. Late rows, the longest ones, come first.
__device__ __forceinline__ bool find_task(const PrefillParams& p, PrefillTask& task) {
  const int sequence = p.first_sequence + blockIdx.z;
  task.kv_head = blockIdx.x;
  task.row = p.first_row[sequence];
  task.rows = p.first_row[sequence + 1] - task.row;
  task.first_pair = (gridDim.y - 1 - blockIdx.y) * kBlockRows;
  if (task.first_pair >= task.rows * p.group) return false;
  task.first = p.positions[task.row];
  task.pages = p.page_table + static_cast<int64_t>(sequence) * p.page_table_stride;
  return true;
}

// Tokens that each of this lane's rows may see, counted from the slice's start.
__device__ __forceinline__ void find_limits(const PrefillParams& p, const PrefillTask& task, int (&limit)[2][2]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      limit[m][h] = min((task.first_pair + pair_of(m, h)) / p.group, task.rows - 1);
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kPrefillThreads, 2) prefill_exact_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<PrefillShared<D>*>(shared_bytes);
  let_next_start();
  wait_for_inputs();
  PrefillTask task;
  if (!find_task(p, task)) return;
  copy_queries<T, D>(p, task, shared.queries);
  fill_own_factors<D>(p, shared, false);
  WarpRows<D> rows;
  rows.clear(__is_same(T, __half) ? kWeightLift : 1.0f);
  int limit[2][2];
  find_limits(p, task, limit);
#pragma unroll
  for (int i = 0; i < 4; ++i) limit[i / 2][i % 2] += task.first;
  const int first_limit = task.first + task.first_pair / p.group;
  const int last_limit = task.first + (task.first_pair + task.pairs(p.group) - 1) / p.group;
  attend_elements<RecordSource<T, D>, D, false>(p, task, limit, first_limit, last_limit, false, shared, rows);
  store_outputs<T, D>(p, task, rows);
}

// Which pairs are metered; true where any of the block is.
template <int D>
__device__ bool find_cells(const PrefillParams& p, const PrefillTask& task, PrefillShared<D>& shared,
                           WarpRows<D>& rows) {
  const int pair = threadIdx.x;
  int cell = -1;
  if (pair < task.pairs(p.group)) cell = p.meter.cell_of_row[task.row + (task.first_pair + pair) / p.group];
  shared.pairs.cell[pair] = cell;
  const bool any = __syncthreads_or(cell >= 0) != 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const bool mine = shared.pairs.cell[pair_of(m, 0)] >= 0 || shared.pairs.cell[pair_of(m, 1)] >= 0;
    rows.metered[m] = __any_sync(kAllLanes, mine);
  }
  return any;
}

template <class T, int D, bool kMetered>
__global__ void __launch_bounds__(kPrefillThreads, 2)
    prefill_certified_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<PrefillShared<D>*>(shared_bytes);
  let_next_start();
  wait_for_inputs();
  PrefillTask task;
  if (!find_task(p, task)) return;
  WarpRows<D> rows;
  rows.clear(1.0f);
  bool metered = false;
  if constexpr (kMetered) {
    metered = find_cells(p, task, shared, rows);
    if (metered) find_value_norm(p, task, shared);
  }
  if (task.first > 0) attend_prefix<D, kMetered>(p, task, metered, shared, rows);
  if (__is_same(T, __half)) rows.change_lift(kWeightLift);
  copy_queries<T, D>(p, task, shared.queries);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  fill_own_factors<D>(p, shared, metered);
  __syncthreads();
  int limit[2][2];
  find_limits(p, task, limit);
  const int first_limit = task.first_pair / p.group;
  const int last_limit = (task.first_pair + task.pairs(p.group) - 1) / p.group;
  attend_elements<OwnSource<T, D>, D, kMetered>(p, task, limit, first_limit, last_limit, metered, shared, rows);
  if constexpr (kMetered) store_cells<T, D>(p, task, shared, rows);
  store_outputs<T, D>(p, task, rows);
}

template <int D, class Kernel>
void launch_blocks(CudaContext& context, Kernel* kernel, const AttentionCall& call, const PrefillParams& p) {
  constexpr int bytes = sizeof(PrefillShared<D>);
  static_assert(2 * (bytes + 1024) <= 228 * 1024, "two blocks do not fit a multiprocessor");
  context.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t pairs = static_cast<int64_t>(call.batch.max_slice_rows) * p.group;
  const dim3 grid(p.num_kv_heads, static_cast<unsigned>((pairs + kBlockRows - 1) / kBlockRows),
                  call.batch.num_sequences - call.batch.num_decodes);
  launch_dependent(context, kernel, grid, dim3(kPrefillThreads), bytes, p);
}

template <class T, int D>
void launch_for(CudaContext& context, const AttentionCall& call, const PrefillParams& p) {
  if (!is_compressed(p.cache.format)) return launch_blocks<D>(context, prefill_exact_kernel<T, D>, call, p);
  if (p.meter.num_metered > 0) return launch_blocks<D>(context, prefill_certified_kernel<T, D, true>, call, p);
  launch_blocks<D>(context, prefill_certified_kernel<T, D, false>, call, p);
}

}  // namespace

void launch_prefill(CudaContext& context, const AttentionCall& call) {
  if (call.batch.num_sequences == call.batch.num_decodes) return;
  PrefillParams p{};
  p.cache = call.cache;
  p.layer = call.layer;
  p.positions = call.batch.positions;
  p.first_row = call.batch.first_row;
  p.page_table = call.batch.page_table;
  p.page_table_stride = call.batch.page_table_stride;
  p.first_sequence = call.batch.num_decodes;
  p.num_heads = call.shape.num_heads;
  p.num_kv_heads = call.shape.num_kv_heads;
  p.group = p.num_heads / p.num_kv_heads;
  p.qkv = call.qkv.data;
  p.dtype = call.qkv.dtype;
  p.row_stride = call.qkv.row_stride;
  p.out = call.out.data;
  p.out_stride = call.out.row_stride;
  p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  p.meter = call.meter;
  const bool wide = call.shape.head_dim == 128;
  if (p.dtype == DType::kBF16)
    wide ? launch_for<__nv_bfloat16, 128>(context, call, p) : launch_for<__nv_bfloat16, 64>(context, call, p);
  else
    wide ? launch_for<__half, 128>(context, call, p) : launch_for<__half, 64>(context, call, p);
}

}  // namespace assay
