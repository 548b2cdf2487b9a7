// rtn-int8-tensor: one scale per layer and KV head from calibration, saturating.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t rtn_int8_tensor_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * tile.head_dim;
}
ASSAY_HOST_DEVICE void rtn_int8_tensor_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) {
    out[i] = static_cast<uint8_t>(detail::round_clamped(divide(rows[i], tile.static_scale), -127.0f, 127.0f) + 128);
  }
}
ASSAY_HOST_DEVICE void rtn_int8_tensor_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) {
    rows[i] = multiply(tile.static_scale, static_cast<float>(in[i]) - 128.0f);
  }
}

}  // namespace assay::kv
