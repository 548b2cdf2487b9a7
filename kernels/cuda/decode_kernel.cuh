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

#include "kernels/cuda/decode_state.cuh"

namespace assay {

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
