// fp8-e4m3: a cast, saturating at 448.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t fp8_e4m3_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * tile.head_dim;
}
ASSAY_HOST_DEVICE void fp8_e4m3_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) out[i] = e4m3_saturate(rows[i]);
}
ASSAY_HOST_DEVICE void fp8_e4m3_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) rows[i] = e4m3_to_float(in[i]);
}

}  // namespace assay::kv
