// Working memory of attention: the queries of a block of (row, head) pairs and the running softmax of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv/paged_kv_view.h"

namespace assay {

// Running softmax of `pairs` pairs: largest score, sum of exponentials, weighted sum of V.
struct SoftmaxState {
  float* max;  // [pairs]
  float* sum;  // [pairs]
  float* acc;  // [pairs, dim_stride]
};

// Pairs are ordered row by row, the heads of the group within a row.
struct AttentionBlock {
  const PagedKvView* cache;
  int32_t layer;
  const int32_t* pages;
  int32_t kv_head;
  int32_t head_dim;
  int32_t dim_stride;      // head_dim rounded up to 16
  int32_t first_position;  // of row 0
  int32_t group;           // query heads per KV head
  int32_t pairs;           // rows x group
  const float* q;          // [pairs, dim_stride], scaled by 1 / sqrt(head_dim), zero padded
  float* k_tile;           // [head_dim, 16]
  float* v_tile;           // [16, dim_stride]
  float* probs;            // [pairs, 16]
  float* decay;            // [pairs] factor of the old state, per tile

  // Tokens of `tile` that the row of `pair` may see, 0 to 16.
  int32_t visible(int32_t pair, int32_t tile) const {
    const int32_t count = first_position + pair / group + 1 - tile * kTileTokens;
    return count < 0 ? 0 : count > kTileTokens ? kTileTokens : count;
  }
  int32_t rows() const { return pairs / group; }
};

}  // namespace assay
