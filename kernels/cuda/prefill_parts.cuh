// The two parts of a prefill row's context: rows that lie in memory as elements (the exact pool, or the slice's own)
// and the stored prefix of a compressed pool.
#pragma once

#include "kernels/cuda/prefill_rows.cuh"

namespace assay {

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

}  // namespace assay
