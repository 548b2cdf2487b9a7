// stochastic-int8: rtn-int8 with floor(x / s + u), u uniform in [0, 1): the negative control. Unbiased, but its
// residual reaches a whole step and is not independent of x; no dither radius holds for it.
#pragma once

#include "kernels/kv/schemes/rtn.h"

namespace assay::kv {

ASSAY_HOST_DEVICE int64_t stochastic_int8_bytes(const TileContext& tile) {
  return rtn_int8_bytes(tile);
}
ASSAY_HOST_DEVICE void stochastic_int8_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  const int d = tile.head_dim, size = group_channels(d), bytes = detail::symmetric_row_bytes(d, 8);
  for (int t = 0; t < tile.tokens; ++t) {
    const uint32_t slot = tile.first_slot + static_cast<uint32_t>(t);
    uint8_t* codes = out + t * bytes;
    for (int g = 0; g < group_count(d); ++g) {
      const float* x = rows + t * d + g * size;
      uint16_t scale = scale_bits_of(x, size);
      if (scale == kHalfInfinity) scale = 0;
      detail::store_half(codes + d + 2 * g, scale);
      for (int i = 0; i < size; ++i) {
        const uint32_t word = random_word(RandomStream::kStochasticRounding, tile.seed, tile.layer, tile.kv_head, slot,
                                          static_cast<uint32_t>(g * size + i));
        const float u = static_cast<float>(word >> 8) * 0x1p-24f;
        const float level = scale == 0 ? 0.0f : std::floor(divide(x[i], half_to_float(scale)) + u);
        codes[g * size + i] = biased_level(static_cast<int8_t>(level));
      }
    }
  }
}
ASSAY_HOST_DEVICE void stochastic_int8_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  rtn_int8_decode(tile, in, rows);
}

}  // namespace assay::kv
