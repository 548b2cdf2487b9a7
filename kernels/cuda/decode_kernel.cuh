// Split-KV decode attention with its meter, for any pool of decode_pools.cuh.
//
// Blocks stay for the whole launch and walk their range of tiles (decode_plan.cuh). A warp takes every fourth tile of a
// piece; records arrive by bulk copies in a ring that belongs to the warp, and the requests run ahead across pieces, so
// memory never waits for the start of the next one. There is no block-wide barrier in the loop over tiles.
//
// Meter: sums of p (u - 1), p (u - 1)^2 and p rho (bounds.h) beside those of p; the largest witness. Weights are
// halves: they and the scale of V are kept normal by a power of two that follows the largest scale seen (`lift`), so
// what rounds to zero is below 2^-40 of it.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/decode_plan.cuh"
#include "kernels/cuda/decode_pools.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp_row.cuh"
#include "kernels/kv/fold_cell.h"

namespace assay {

struct DecodeParams {
  DecodeShape shape;
  DecodeScratch scratch;
  PagedKvView cache;
  int32_t layer;
  const int32_t* positions;  // of sequence s in row s
  const int32_t* page_table;
  int32_t page_table_stride;
  const void* qkv;
  DType qkv_dtype;
  int64_t row_stride;
  float softmax_scale;
  kv::MeterView meter;
  void* out;
  DType out_dtype;
  int64_t out_stride;

  __device__ const int32_t* pages_of(int sequence) const {
    return page_table + static_cast<int64_t>(sequence) * page_table_stride;
  }
};

constexpr float kWeightLift = 32768.0f;  // a weight of 1 becomes this
constexpr float kNoLogit = -__builtin_huge_valf();

// Part of a block's range that lies in one item.
struct DecodePiece {
  int sequence, lane;
  int begin, end;  // tiles
  int tiles;       // of the sequence
  int left;        // tiles of the range behind this piece

  __device__ void next(const DecodeParams& p) {
    if (++lane == p.shape.lanes()) {
      lane = 0;
      do tiles = p.shape.tiles_of(p.positions[++sequence]);
      while (tiles == 0);
    }
    begin = 0;
    end = min(tiles, left);
    left -= end;
  }
};

// What a head's scores and witnesses are multiplied by.
struct HeadFactors {
  float score;   // to logits in base 2
  float radius;  // to radii in base 2
};

template <class Pool, int kStages>
struct DecodeShared {
  alignas(128) uint8_t ring[kDecodeWarps][kStages][Pool::kRecordBytes];
  union {
    uint16_t queries[Pool::kQueryParts][kLaneHeads][Pool::kDim];
    float outputs[kLaneHeads][Pool::kDim + 4];
  };
  uint64_t barriers[kDecodeWarps][kStages];
  PieceSums sums[kDecodeWarps][kLaneHeads];
  HeadFactors factors[kLaneHeads];
  int warp_tiles[kDecodeWarps];
  int start[3];
};

// ---- Where a block begins

// Tiles before the sequences of this thread, and of all.
struct TileCount {
  int before, all;
};

template <class Shared>
__device__ __forceinline__ TileCount count_tiles(const DecodeParams& p, Shared& shared, int first, int end) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int mine = 0;
  for (int s = first; s < end; ++s) mine += p.shape.tiles_of(p.positions[s]);
  int inclusive = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  if (lane == 31) shared.warp_tiles[warp] = inclusive;
  __syncthreads();
  TileCount count{inclusive - mine, 0};
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    if (w < warp) count.before += shared.warp_tiles[w];
    count.all += shared.warp_tiles[w];
  }
  return count;
}

// The first piece of this block; false: it has no work. Block 0 leaves the count of tiles for the kernel that merges.
template <class Shared>
__device__ __forceinline__ bool find_start(const DecodeParams& p, Shared& shared, DecodePiece& piece,
                                           TileCount& count) {
  const int per_thread = (p.shape.num_sequences + kDecodeThreads - 1) / kDecodeThreads;
  const int first = min(p.shape.num_sequences, static_cast<int>(threadIdx.x) * per_thread);
  const int end = min(p.shape.num_sequences, first + per_thread);
  count = count_tiles(p, shared, first, end);
  const DecodeCut cut(count.all * p.shape.lanes(), p.shape.max_blocks);
  if (static_cast<int>(blockIdx.x) >= cut.blocks) return false;
  const int range = cut.begin(blockIdx.x);
  int before = count.before;
  for (int s = first; s < end; ++s) {
    const int tiles = p.shape.tiles_of(p.positions[s]), behind = range - before * p.shape.lanes();
    if (behind >= 0 && behind < tiles * p.shape.lanes()) {
      shared.start[0] = s;
      shared.start[1] = behind / tiles;
      shared.start[2] = behind % tiles;
    }
    before += tiles;
  }
  __syncthreads();
  piece.sequence = shared.start[0];
  piece.lane = shared.start[1];
  piece.begin = shared.start[2];
  piece.tiles = p.shape.tiles_of(p.positions[piece.sequence]);
  const int length = cut.begin(blockIdx.x + 1) - range;
  piece.end = min(piece.tiles, piece.begin + length);
  piece.left = length - (piece.end - piece.begin);
  return true;
}

__device__ __forceinline__ void store_tile_counts(const DecodeParams& p, TileCount count) {
  const int per_thread = (p.shape.num_sequences + kDecodeThreads - 1) / kDecodeThreads;
  const int first = min(p.shape.num_sequences, static_cast<int>(threadIdx.x) * per_thread);
  const int end = min(p.shape.num_sequences, first + per_thread);
  for (int s = first; s < end; ++s) {
    p.scratch.first_tile[s] = count.before;
    count.before += p.shape.tiles_of(p.positions[s]);
  }
  if (threadIdx.x == 0) p.scratch.first_tile[p.shape.num_sequences] = count.all;
}

// ---- Records on their way

// The tiles of one warp, in order, ahead of their use. The page of the next request is read one request early.
template <class Pool, int kStages>
class RecordFeeder {
 public:
  __device__ RecordFeeder(const DecodeParams& p, const DecodePiece& first, DecodeShared<Pool, kStages>& shared)
      : p_(p),
        shared_(shared),
        piece_(first),
        layer_base_(p.cache.record(p.layer, 0, 0, 0)),
        tiles_per_page_(p.cache.tiles_per_page()) {
    tile_ = first.begin + static_cast<int>(threadIdx.x / 32) - kDecodeWarps;
    advance();
  }

  // Requests the next record into a free place of the ring.
  __device__ __forceinline__ void request(int stage) {
    if (done_) return;
    if (threadIdx.x % 32 == 0) {
      const int warp = threadIdx.x / 32, kv_head = piece_.lane / p_.shape.lanes_per_head;
      const int in_page = tiles_per_page_ == 1 ? 0 : tile_ % tiles_per_page_;
      const std::byte* record = layer_base_ + page_ * p_.cache.page_layer_bytes() +
                                static_cast<int64_t>(kv_head * tiles_per_page_ + in_page) * Pool::kRecordBytes;
      start_bulk_copy(shared_.ring[warp][stage], record, Pool::kRecordBytes, &shared_.barriers[warp][stage]);
    }
    advance();
  }

 private:
  __device__ __forceinline__ void advance() {
    tile_ += kDecodeWarps;
    while (tile_ >= piece_.end) {
      if (piece_.left == 0) {
        done_ = true;
        return;
      }
      piece_.next(p_);
      tile_ = threadIdx.x / 32;
    }
    page_ = p_.pages_of(piece_.sequence)[tiles_per_page_ == 1 ? tile_ : tile_ / tiles_per_page_];
  }

  const DecodeParams& p_;
  DecodeShared<Pool, kStages>& shared_;
  DecodePiece piece_;
  const std::byte* layer_base_;
  int tiles_per_page_;
  int tile_;
  int page_ = 0;
  bool done_ = false;
};

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

// ---- The end of a piece

// Weight of sums with maximum `part` in sums with maximum `whole`.
__device__ __forceinline__ float share(float part, float whole) {
  return part == kNoLogit ? 0.0f : exp2_fast(part - whole);
}

template <class Sums>
__device__ __forceinline__ void add_sums(PieceSums& total, const Sums& from, float factor) {
  total.weight += from.weight * factor;
  total.b1 += from.b1 * factor;
  total.b2 += from.b2 * factor;
  total.value_error += from.value_error * factor;
  total.radius_max = fmaxf(total.radius_max, from.radius_max);
  total.value_norm_low = fmaxf(total.value_norm_low, from.value_norm_low);
}

template <class Pool, bool kMetered, class Shared>
__device__ __forceinline__ void store_piece(const DecodeParams& p, const DecodePiece& piece,
                                            const WarpState<Pool, kMetered>& state, const HeadFactors (&factors)[2],
                                            float value_norm, Shared& shared) {
  constexpr int D = Pool::kDim;
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    PieceSums sums = state.head_sums(x, factors[x]);
    sums.value_norm_low = value_norm;
    if (group == 0) shared.sums[warp][2 * place + x] = sums;
  }
  __syncthreads();
  float max[2] = {kNoLogit, kNoLogit};
#pragma unroll
  for (int w = 0; w < kDecodeWarps; ++w) {
    max[0] = fmaxf(max[0], shared.sums[w][2 * place].logit_max);
    max[1] = fmaxf(max[1], shared.sums[w][2 * place + 1].logit_max);
  }
  const float factor[2] = {share(state.max[0], max[0]) / state.lift, share(state.max[1], max[1]) / state.lift};
  const int heads = p.shape.heads_of(piece.lane);
  const int64_t first =
      static_cast<int64_t>(DecodeCut::piece(blockIdx.x, piece.sequence * p.shape.lanes() + piece.lane)) *
      p.shape.heads_per_lane;
#pragma unroll
  for (int turn = kDecodeWarps - 1; turn >= 0; --turn) {
    if (warp == turn) {
#pragma unroll
      for (int m = 0; m < Pool::kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int h = 2 * place + i % 2, c = Pool::channel(m, i, group);
          float value = state.out[m][i] * factor[i % 2];
          if (turn < kDecodeWarps - 1) value += shared.outputs[h][c];
          if (turn > 0) {
            shared.outputs[h][c] = value;
          } else if (h < heads) {
            p.scratch.outputs[(first + h) * D + c] = value;
          }
        }
      }
    }
    if (turn > 0) __syncthreads();
  }
  if (static_cast<int>(threadIdx.x) < heads) {
    const int h = threadIdx.x;
    PieceSums total{};
    total.logit_max = kNoLogit;
    for (int w = 0; w < kDecodeWarps; ++w) total.logit_max = fmaxf(total.logit_max, shared.sums[w][h].logit_max);
    for (int w = 0; w < kDecodeWarps; ++w) {
      add_sums(total, shared.sums[w][h], share(shared.sums[w][h].logit_max, total.logit_max));
    }
    p.scratch.sums[first + h] = total;
  }
}

// Largest |v| of the pages of a piece; each thread looks at some. In three steps, so that the reads of the first two
// pass while other work is done.
class PageNorms {
 public:
  __device__ __forceinline__ PageNorms(const DecodeParams& p, const DecodePiece& piece)
      : norms_(p.cache.value_norms(p.layer, piece.lane / p.shape.lanes_per_head)),
        pages_(p.pages_of(piece.sequence)),
        first_(piece.begin / p.cache.tiles_per_page() + static_cast<int>(threadIdx.x)),
        end_((piece.end - 1) / p.cache.tiles_per_page() + 1) {
#pragma unroll
    for (int i = 0; i < kEarly; ++i) early_[i] = index(i) < end_ ? pages_[index(i)] : -1;
  }
  __device__ __forceinline__ void read() {
#pragma unroll
    for (int i = 0; i < kEarly; ++i) early_[i] = early_[i] >= 0 ? norms_[early_[i]] : 0;
  }
  // The same in every lane of a warp.
  __device__ __forceinline__ float largest() const {
    int largest = 0;
#pragma unroll
    for (int norm : early_) largest = max(largest, norm);
    for (int i = kEarly; index(i) < end_; ++i) largest = max(largest, static_cast<int>(norms_[pages_[index(i)]]));
    return kv::half_to_float(static_cast<uint16_t>(__reduce_max_sync(kAllLanes, static_cast<unsigned>(largest))));
  }

 private:
  static constexpr int kEarly = 2;
  __device__ __forceinline__ int index(int i) const {
    return first_ + i * kDecodeThreads;
  }

  const uint16_t* norms_;
  const int32_t* pages_;
  int first_, end_;
  int early_[kEarly];
};

struct NoPageNorms {
  __device__ __forceinline__ NoPageNorms(const DecodeParams&, const DecodePiece&) {}
  __device__ __forceinline__ void read() {}
  __device__ __forceinline__ float largest() const { return 0.0f; }
};

// Where the ring is read next.
struct RingPlace {
  int stage = 0;
  uint32_t phase = 0;
};

// One piece: queries into registers, its tiles, its sums into the scratch memory.
template <class Pool, int kStages, bool kMetered>
__device__ __forceinline__ void attend_piece(const DecodeParams& p, const DecodePiece& piece,
                                             RecordFeeder<Pool, kStages>& feeder, RingPlace& at,
                                             DecodeShared<Pool, kStages>& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::conditional_t<kMetered, PageNorms, NoPageNorms> norms(p, piece);
  PieceQueries<Pool> queries(p, piece);
  const int stored = p.shape.stored_tokens(p.positions[piece.sequence]);
  __syncthreads();  // the last piece has left the shared memory
  queries.store(shared);
  norms.read();
  __syncthreads();
  typename Pool::Query query;
  Pool::load_query(&shared.queries[0][0][0], query);
  const HeadFactors factors[2] = {shared.factors[2 * (lane % 4)], shared.factors[2 * (lane % 4) + 1]};
  __syncthreads();  // outputs share the memory of the queries
  WarpState<Pool, kMetered> state;
  state.clear();
  for (int tile = piece.begin + warp; tile < piece.end; tile += kDecodeWarps) {
    wait_barrier(&shared.barriers[warp][at.stage], at.phase);
    state.add_tile(shared.ring[warp][at.stage], query, factors, min(kTileTokens, stored - tile * kTileTokens));
    __syncwarp();
    feeder.request(at.stage);
    if (++at.stage == kStages) at = {0, at.phase ^ 1};
  }
  store_piece<Pool, kMetered>(p, piece, state, factors, norms.largest(), shared);
}

// The next kernel is let start late: blocks of it that wait on a multiprocessor would keep blocks of this one out.
template <class Pool, int kStages, int kBlocks, bool kMetered>
__global__ void __launch_bounds__(kDecodeThreads, kBlocks) decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<DecodeShared<Pool, kStages>*>(shared_bytes);
  if (threadIdx.x % 32 == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(&shared.barriers[threadIdx.x / 32][i], 1);
    publish_barriers();
  }
  if constexpr (!Pool::kCompressed) wait_for_inputs();  // its last row was written just now
  DecodePiece piece;
  TileCount count;
  const bool works = find_start(p, shared, piece, count);
  if (!works && blockIdx.x != 0) return;
  if (!works) {
    wait_for_inputs();
    return store_tile_counts(p, count);
  }
  RecordFeeder<Pool, kStages> feeder(p, piece, shared);
  for (int i = 0; i < kStages; ++i) feeder.request(i);
  if constexpr (Pool::kCompressed) wait_for_inputs();  // stored rows were written in earlier steps
  if (blockIdx.x == 0) store_tile_counts(p, count);
  RingPlace at;
  while (true) {
    attend_piece<Pool, kStages, kMetered>(p, piece, feeder, at, shared);
    if (piece.left == 0) break;
    piece.next(p);
  }
  let_next_start();
}

}  // namespace assay
