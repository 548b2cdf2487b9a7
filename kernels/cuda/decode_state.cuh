// The queries of a piece, and one warp's sums over its tiles.
#pragma once

#include "kernels/cuda/decode_range.cuh"
#include "kernels/cuda/warp_row.cuh"

namespace assay {

// ---- Queries

// The queries of a piece, two heads a warp. Everything they need is asked for at once: under full load a read of global
// memory takes as long as dozens of tiles.
template <class Pool>
class PieceQueries {
  static constexpr int D = Pool::kDim, n = WarpRow<D>::kCount, kHeads = kLaneHeads / kDecodeWarps;

 public:
  __device__ __forceinline__ PieceQueries(const DecodeParams& p, const DecodePiece& piece)
      : p_(p),
        heads_(p.shape.heads_of(piece.lane)),
        transform_(p.cache.transform(p.layer, piece.lane / p.shape.lanes_per_head)),
        lanes_(transform_) {
    const int64_t first = piece.sequence * p.row_stride + static_cast<int64_t>(p.shape.first_head(piece.lane)) * D;
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      rows_[i] = WarpRow<D>{};
      if (head(i) < heads_) rows_[i] = load_row<D>(p.qkv_dtype, p.qkv, first + static_cast<int64_t>(head(i)) * D);
    }
  }

  template <class Shared>
  __device__ __forceinline__ void store(Shared& shared) {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      HeadFactors factors{p_.softmax_scale * kLog2E, 0.0f};
      if constexpr (Pool::kCompressed) {
        factors = store_transformed(rows_[i], shared.queries[0][head(i)], shared.queries[1][head(i)]);
      } else {
        store_row<D>(p_.cache.dtype, shared.queries[0][head(i)], 0, rows_[i]);
      }
      if (lane_id() == 0) shared.factors[head(i)] = head(i) < heads_ ? factors : HeadFactors{0.0f, 0.0f};
    }
  }

 private:
  static __device__ __forceinline__ int head(int i) {
    return static_cast<int>(threadIdx.x / 32) + i * kDecodeWarps;
  }

  // As halves of R Lambda q times a power of two.
  __device__ __forceinline__ HeadFactors store_transformed(WarpRow<D> row, uint16_t* high, uint16_t* low) const {
    transform_row(lanes_, RowRole::kQuery, row);
    const float norm = kv::norm_up_from_squares(square_sum(row), D);
    const float scale = kv::query_scale(norm);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float x = row.x[i] * scale;
      const __half upper = __float2half_rn(x);
      high[lane_id() * n + i] = __half_as_ushort(upper);
      low[lane_id() * n + i] = __half_as_ushort(__float2half_rn(x - __half2float(upper)));
    }
    const float radius = kv::witness_factor(p_.softmax_scale, norm, kv::transform_margins(transform_));
    return {p_.softmax_scale * kLog2E / scale, radius * kLog2E};
  }

  const DecodeParams& p_;
  const int heads_;
  const kv::RowTransform transform_;
  const LaneTransform<D> lanes_;
  WarpRow<D> rows_[kHeads];
};

// ---- One warp's sums over its tiles of a piece

template <class Pool, bool kMetered>
struct WarpState {
  float out[Pool::kRowTiles][4];
  float max[2], weight[2], b1[2], b2[2], value_error[2];
  float witness_max, scale_bound, lift;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& tile : out) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    max[0] = max[1] = kNoLogit;
#pragma unroll
    for (int x = 0; x < 2; ++x) weight[x] = b1[x] = b2[x] = value_error[x] = 0.0f;
    witness_max = scale_bound = 0.0f;
    lift = sizeof(typename Pool::Element) == 2 && !Pool::kCompressed ? plain_lift() : 1.0f;
  }

  // Exact values: bfloat16 weights never underflow, halves are lifted.
  static __device__ __forceinline__ float plain_lift() {
    return __is_same(typename Pool::Element, __half) ? kWeightLift : 1.0f;
  }

  // New maxima over the warp, and a new bound of V's scales where one moved.
  __device__ __forceinline__ void rescale(float max0, float max1, float largest_scale) {
    max0 = fmaxf(max[0], groups_max(max0));
    max1 = fmaxf(max[1], groups_max(max1));
    const float decay[2] = {max0 == max[0] ? 1.0f : exp2_fast(max[0] - max0),
                            max1 == max[1] ? 1.0f : exp2_fast(max[1] - max1)};
    max[0] = max0;
    max[1] = max1;
    float shrink = 1.0f;
    if constexpr (Pool::kCompressed) {
      largest_scale = groups_max(largest_scale);
      if (largest_scale > scale_bound) {
        const uint32_t exponent = (__float_as_uint(largest_scale) >> 23) + 1;
        scale_bound = __uint_as_float(exponent << 23);                          // the power of two above it
        const float new_lift = __uint_as_float((254u - exponent + 15u) << 23);  // 2^15 / scale_bound
        shrink = new_lift / lift;
        lift = new_lift;
      }
    }
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      weight[x] *= decay[x];
      b1[x] *= decay[x];
      b2[x] *= decay[x];
      value_error[x] *= decay[x];
    }
    const float factor0 = decay[0] * shrink, factor1 = decay[1] * shrink;
#pragma unroll
    for (auto& tile : out) {
      tile[0] *= factor0;
      tile[1] *= factor1;
      tile[2] *= factor0;
      tile[3] *= factor1;
    }
  }

  // Adds token `t` (0: group, 1: group + 8) to the meter's sums. p: its weights.
  __device__ __forceinline__ void add_radius(float p0, float p1, float witness, float rho,
                                             const HeadFactors (&factors)[2]) {
    const float growth0 = exp2_fast(factors[0].radius * witness) - 1.0f;
    const float growth1 = exp2_fast(factors[1].radius * witness) - 1.0f;
    const float product0 = p0 * growth0, product1 = p1 * growth1;
    b1[0] += product0;
    b1[1] += product1;
    b2[0] = fmaf(product0, growth0, b2[0]);
    b2[1] = fmaf(product1, growth1, b2[1]);
    value_error[0] = fmaf(p0, rho, value_error[0]);
    value_error[1] = fmaf(p1, rho, value_error[1]);
  }

  // One record; `visible` of its tokens count.
  __device__ __forceinline__ void add_tile(const uint8_t* record, const typename Pool::Query& query,
                                           const HeadFactors (&factors)[2], int visible) {
    constexpr int D = Pool::kDim;
    const int group = threadIdx.x % 32 / 4;
    float s[4];
    Pool::score(record, query, s);
    float value_scale[2] = {1.0f, 1.0f}, witness[2] = {}, rho[2] = {};
    if constexpr (Pool::kCompressed) {
      const int side = kv::value_side_index(group);  // of token group + 8: two further
      const float k0 = Pool::half_at(record, 2 * kTileTokens * D, group);
      const float k1 = Pool::half_at(record, 2 * kTileTokens * D, group + 8);
      s[0] *= k0;
      s[1] *= k0;
      s[2] *= k1;
      s[3] *= k1;
      value_scale[0] = Pool::half_at(record, 2 * kTileTokens * D + 64, side);
      value_scale[1] = Pool::half_at(record, 2 * kTileTokens * D + 64, side + 2);
      if constexpr (kMetered) {
        witness[0] = Pool::half_at(record, 2 * kTileTokens * D + 32, group);
        witness[1] = Pool::half_at(record, 2 * kTileTokens * D + 32, group + 8);
        rho[0] = Pool::half_at(record, 2 * kTileTokens * D + 96, side);
        rho[1] = Pool::half_at(record, 2 * kTileTokens * D + 96, side + 2);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) s[i] *= factors[i % 2].score;
    if (visible < kTileTokens) {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        if (group + 8 * t < visible) continue;
        s[2 * t] = s[2 * t + 1] = kNoLogit;
        value_scale[t] = witness[t] = rho[t] = 0.0f;
      }
    }
    const float max0 = fmaxf(s[0], s[2]), max1 = fmaxf(s[1], s[3]);
    const float largest_scale = fmaxf(value_scale[0], value_scale[1]);
    const bool moved = max0 > max[0] || max1 > max[1] || (Pool::kCompressed && largest_scale > scale_bound);
    if (__any_sync(kAllLanes, moved)) rescale(max0, max1, largest_scale);
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = exp2_fast(s[i] - max[i % 2]);
      weight[i % 2] += w[i];
    }
    if constexpr (kMetered) {
      add_radius(w[0], w[1], witness[0], rho[0], factors);
      add_radius(w[2], w[3], witness[1], rho[1], factors);
      witness_max = fmaxf(witness_max, fmaxf(witness[0], witness[1]));
    }
    const float scale0 = value_scale[0] * lift, scale1 = value_scale[1] * lift;
    using Element = typename Pool::Element;
    const uint32_t weights0 = transpose_matrix(pack_pair<Element>(w[0] * scale0, w[1] * scale0));
    const uint32_t weights1 = transpose_matrix(pack_pair<Element>(w[2] * scale1, w[3] * scale1));
    Pool::accumulate(record, weights0, weights1, visible, out);
  }

  __device__ __forceinline__ PieceSums head_sums(int x, const HeadFactors& factors) const {
    PieceSums sums{};
    sums.logit_max = max[x];
    sums.weight = groups_sum(weight[x]);
    if constexpr (kMetered) {
      sums.b1 = groups_sum(b1[x]);
      sums.b2 = groups_sum(b2[x]);
      sums.value_error = groups_sum(value_error[x]);
      sums.radius_max = factors.radius * kLn2 * (1.0f + 0x1p-22f) * groups_max(witness_max);
    }
    return sums;
  }
};

}  // namespace assay
