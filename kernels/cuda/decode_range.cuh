// What a decode launch is told, where a block's range begins, and the requests for its records.
#pragma once

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/decode_plan.cuh"
#include "kernels/cuda/decode_pools.cuh"
#include "kernels/cuda/launch.cuh"
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
        page_bytes_(p.cache.page_layer_bytes()),
        tiles_per_page_(p.cache.tiles_per_page()) {
    enter_piece();
    tile_ = first.begin + static_cast<int>(threadIdx.x / 32) - kDecodeWarps;
    advance();
  }

  // Requests the next record into a free place of the ring.
  __device__ __forceinline__ void request(int stage) {
    if (done_) return;
    const int warp = threadIdx.x / 32;
    const std::byte* record = head_records_ + page_ * page_bytes_;
    if (tiles_per_page_ > 1) record += tile_ % tiles_per_page_ * Pool::kRecordBytes;
    if (threadIdx.x % 32 == 0) {
      start_bulk_copy(shared_.ring[warp][stage], record, Pool::kRecordBytes, &shared_.barriers[warp][stage]);
    }
    advance();
  }

 private:
  __device__ __forceinline__ void enter_piece() {
    head_records_ = p_.cache.record(p_.layer, 0, piece_.lane / p_.shape.lanes_per_head, 0);
    pages_ = p_.pages_of(piece_.sequence);
  }
  __device__ __forceinline__ void advance() {
    tile_ += kDecodeWarps;
    while (tile_ >= piece_.end) {
      if (piece_.left == 0) {
        done_ = true;
        return;
      }
      piece_.next(p_);
      enter_piece();
      tile_ = threadIdx.x / 32;
    }
    page_ = pages_[tiles_per_page_ == 1 ? tile_ : tile_ / tiles_per_page_];
  }

  const DecodeParams& p_;
  DecodeShared<Pool, kStages>& shared_;
  DecodePiece piece_;
  const std::byte* head_records_ = nullptr;  // of page 0
  const int32_t* pages_ = nullptr;
  const int64_t page_bytes_;
  const int tiles_per_page_;
  int tile_;
  int page_ = 0;
  bool done_ = false;
};

}  // namespace assay
