// rtn-int8, rtn-int4: symmetric, per token, groups of 32 channels, one fp16 scale each.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t rtn_int8_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * detail::symmetric_row_bytes(tile.head_dim, 8);
}
ASSAY_HOST_DEVICE void rtn_int8_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  const int bytes = detail::symmetric_row_bytes(tile.head_dim, 8);
  for (int t = 0; t < tile.tokens; ++t) {
    detail::encode_symmetric_row(rows + t * tile.head_dim, tile.head_dim, 8, out + t * bytes);
  }
}
ASSAY_HOST_DEVICE void rtn_int8_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  const int bytes = detail::symmetric_row_bytes(tile.head_dim, 8);
  for (int t = 0; t < tile.tokens; ++t) {
    detail::decode_symmetric_row(in + t * bytes, tile.head_dim, 8, rows + t * tile.head_dim);
  }
}

ASSAY_HOST_DEVICE int64_t rtn_int4_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * detail::symmetric_row_bytes(tile.head_dim, 4);
}
ASSAY_HOST_DEVICE void rtn_int4_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  const int bytes = detail::symmetric_row_bytes(tile.head_dim, 4);
  for (int t = 0; t < tile.tokens; ++t) {
    detail::encode_symmetric_row(rows + t * tile.head_dim, tile.head_dim, 4, out + t * bytes);
  }
}
ASSAY_HOST_DEVICE void rtn_int4_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  const int bytes = detail::symmetric_row_bytes(tile.head_dim, 4);
  for (int t = 0; t < tile.tokens; ++t) {
    detail::decode_symmetric_row(in + t * bytes, tile.head_dim, 4, rows + t * tile.head_dim);
  }
}

}  // namespace assay::kv
