// identity: the rows in their own dtype.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t identity_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * tile.head_dim * (tile.dtype == DType::kF32 ? 4 : 2);
}
ASSAY_HOST_DEVICE void identity_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) {
    if (tile.dtype == DType::kF32) std::memcpy(out + 4 * i, rows + i, sizeof(float));
    if (tile.dtype == DType::kBF16) detail::store_half(out + 2 * i, bf16_nearest(rows[i]));
    if (tile.dtype == DType::kF16) detail::store_half(out + 2 * i, half_nearest(rows[i]));
  }
}
ASSAY_HOST_DEVICE void identity_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) {
    if (tile.dtype == DType::kF32) std::memcpy(rows + i, in + 4 * i, sizeof(float));
    if (tile.dtype == DType::kBF16) rows[i] = bf16_to_float(detail::load_half(in + 2 * i));
    if (tile.dtype == DType::kF16) rows[i] = half_to_float(detail::load_half(in + 2 * i));
  }
}

}  // namespace assay::kv
