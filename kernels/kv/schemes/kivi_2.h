// kivi-2: keys per channel over 32 tokens, values per token in groups of 32 channels; asymmetric, 2 bits.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t kivi_2_bytes(const TileContext& tile) {
  if (tile.side == KvSide::kKey) return int64_t{tile.head_dim} * (tile.tokens / 4 + 4);
  return int64_t{tile.tokens} * detail::affine_row_bytes(tile.head_dim, group_channels(tile.head_dim), 2);
}
ASSAY_HOST_DEVICE void kivi_2_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  const int d = tile.head_dim, size = group_channels(d), bytes = detail::affine_row_bytes(d, size, 2);
  if (tile.side == KvSide::kKey) {
    uint8_t* parameters = out + d * tile.tokens / 4;
    for (int c = 0; c < d; ++c) {
      detail::encode_affine(rows + c, tile.tokens, d, 2, out, c * tile.tokens, parameters + 4 * c);
    }
    return;
  }
  for (int t = 0; t < tile.tokens; ++t) detail::encode_affine_row(rows + t * d, d, size, 2, out + t * bytes);
}
ASSAY_HOST_DEVICE void kivi_2_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  const int d = tile.head_dim, size = group_channels(d), bytes = detail::affine_row_bytes(d, size, 2);
  if (tile.side == KvSide::kKey) {
    const uint8_t* parameters = in + d * tile.tokens / 4;
    for (int c = 0; c < d; ++c) {
      detail::decode_affine(in, c * tile.tokens, 2, parameters + 4 * c, tile.tokens, d, rows + c);
    }
    return;
  }
  for (int t = 0; t < tile.tokens; ++t) detail::decode_affine_row(in + t * bytes, d, size, 2, rows + t * d);
}

}  // namespace assay::kv
