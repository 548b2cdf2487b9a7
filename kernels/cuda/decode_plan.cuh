// How the tiles of a decode step are dealt to blocks, and the partial results they leave.
//
// An item is one sequence with up to 8 query heads of one KV head ("lane" of heads; a group of more is several lanes).
// Items lie one after another, sequence by sequence, lane by lane; the tiles of all of them form one line that is cut
// into equal ranges, one a block. A block's part of one item is a piece. Lengths are read on the device, so a captured
// launch serves any lengths; the cut is a function of the batch alone.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_core.cuh"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

constexpr int kLaneHeads = 8;  // query heads of an item: columns of a matrix fragment
constexpr int kDecodeWarps = 4;
constexpr int kDecodeThreads = kDecodeWarps * 32;
constexpr int kLeastTiles = 2 * kDecodeWarps;  // of a range

// Sums of one head over a piece; exponents in base 2.
struct PieceSums {
  float logit_max;  // times log2 e
  float weight, b1, b2, radius_max, value_error;
  float value_norm_low;  // largest |v| of the pages, rounded down
  float unused;
};

struct DecodeScratch {
  int32_t* first_tile;  // [num_sequences + 1] tiles before a sequence, of one lane
  PieceSums* sums;      // [pieces][heads_per_lane]
  float* outputs;       // [pieces][heads_per_lane][head_dim], not normalised, in the pool's channels
};

struct DecodeShape {
  int32_t num_sequences;
  int32_t num_heads, num_kv_heads;
  int32_t group;           // query heads of a KV head
  int32_t lanes_per_head;  // lanes of a KV head
  int32_t heads_per_lane;  // in memory: min(group, 8)
  int32_t max_blocks;
  bool own_row_stored;  // the cache holds the row of this step too (exact pool)

  __host__ __device__ int lanes() const { return num_kv_heads * lanes_per_head; }
  __host__ __device__ int first_head(int lane) const {
    return lane / lanes_per_head * group + lane % lanes_per_head * kLaneHeads;
  }
  __host__ __device__ int heads_of(int lane) const {
    const int left = group - lane % lanes_per_head * kLaneHeads;
    return left < kLaneHeads ? left : kLaneHeads;
  }
  __host__ __device__ int max_pieces() const { return max_blocks + num_sequences * lanes(); }
  __device__ int stored_tokens(int position) const { return position + (own_row_stored ? 1 : 0); }
  __device__ int tiles_of(int position) const { return (stored_tokens(position) + kTileTokens - 1) / kTileTokens; }
};

// The cut of `tiles` tiles into ranges. Empty: no block has work.
struct DecodeCut {
  int tiles, blocks;

  __device__ DecodeCut(int total, int max_blocks)
      : tiles(total), blocks(min(max_blocks, (total + kLeastTiles - 1) / kLeastTiles)) {}
  __device__ int begin(int block) const { return quotient(tiles, block, 0, blocks); }
  // The block that owns a tile.
  __device__ int block_of(int tile) const { return quotient(tile + 1, blocks, 1, tiles); }
  // Pieces in order of (block, item): a piece starts where a block or an item does.
  __device__ static int piece(int block, int item) { return block + item; }

 private:
  // (a b - c) / d. Division of 64 bits is slow, and where a step is short this is a part of it.
  __device__ static int quotient(int a, int b, int c, int d) {
    if (a < 1 << 20 && b < 1 << 12) {
      return static_cast<int>((static_cast<unsigned>(a) * static_cast<unsigned>(b) - static_cast<unsigned>(c)) /
                              static_cast<unsigned>(d));
    }
    return static_cast<int>((static_cast<int64_t>(a) * b - c) / d);
  }
};

}  // namespace assay
