// kvquant-4: keys per channel over 32 tokens with the largest 1 % of the tile kept exact, values per token; 4 bits.
#pragma once

#include "kernels/kv/schemes/tile.h"

namespace assay::kv {

// Elements of a key tile kept exact: 1 %, rounded up; each 6 bytes (index, float).
ASSAY_HOST_DEVICE int kvquant_kept(const TileContext& tile) {
  return (tile.tokens * tile.head_dim + 99) / 100;
}
ASSAY_HOST_DEVICE int64_t kvquant_4_bytes(const TileContext& tile) {
  if (tile.side == KvSide::kValue) {
    return int64_t{tile.tokens} * detail::affine_row_bytes(tile.head_dim, tile.head_dim, 4);
  }
  return int64_t{tile.head_dim} * (tile.tokens / 2 + 4) + 6 * int64_t{kvquant_kept(tile)};
}

namespace detail {

// Bits of the magnitude that the `kept` largest of x[count] reach: at least `kept` elements are >= it, fewer are above.
ASSAY_HOST_DEVICE uint32_t magnitude_threshold(const float* x, int count, int kept) {
  uint32_t threshold = 0;
  for (int bit = 30; bit >= 0; --bit) {
    const uint32_t trial = threshold | (1u << bit);
    int reaching = 0;
    for (int i = 0; i < count; ++i) reaching += (float_bits(x[i]) & 0x7fffffffu) >= trial;
    if (reaching >= kept) threshold = trial;
  }
  return threshold;
}

// Writes the kept elements (index, float) and marks them: bit token of marks[channel].
ASSAY_HOST_DEVICE void keep_largest(const TileContext& tile, const float* rows, uint8_t* out, uint32_t* marks) {
  const int count = tile.tokens * tile.head_dim, kept = kvquant_kept(tile);
  const uint32_t threshold = magnitude_threshold(rows, count, kept);
  int above = 0, written = 0;
  for (int i = 0; i < count; ++i) above += (float_bits(rows[i]) & 0x7fffffffu) > threshold;
  int ties = kept - above;
  for (int c = 0; c < tile.head_dim; ++c) marks[c] = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = float_bits(rows[i]) & 0x7fffffffu;
    if (magnitude < threshold || (magnitude == threshold && ties-- <= 0)) continue;
    store_half(out + 6 * written, static_cast<uint16_t>(i));
    std::memcpy(out + 6 * written + 2, rows + i, sizeof(float));
    marks[i % tile.head_dim] |= 1u << (i / tile.head_dim);
    ++written;
  }
}

// One channel without its kept elements: they take the place of the channel's first other value (0 if there is none).
ASSAY_HOST_DEVICE void copy_channel(const TileContext& tile, const float* rows, int channel, uint32_t marks,
                                    float* out) {
  float filler = 0;
  for (int t = tile.tokens - 1; t >= 0; --t) {
    if ((marks >> t & 1u) == 0) filler = rows[t * tile.head_dim + channel];
  }
  for (int t = 0; t < tile.tokens; ++t) out[t] = (marks >> t & 1u) != 0 ? filler : rows[t * tile.head_dim + channel];
}

}  // namespace detail

ASSAY_HOST_DEVICE void kvquant_4_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  const int d = tile.head_dim, bytes = detail::affine_row_bytes(d, d, 4);
  if (tile.side == KvSide::kValue) {
    for (int t = 0; t < tile.tokens; ++t) detail::encode_affine_row(rows + t * d, d, d, 4, out + t * bytes);
    return;
  }
  uint32_t marks[kMaxHeadDim];
  uint8_t* parameters = out + d * tile.tokens / 2;
  detail::keep_largest(tile, rows, parameters + 4 * d, marks);
  float channel[kChannelTile];
  for (int c = 0; c < d; ++c) {
    detail::copy_channel(tile, rows, c, marks[c], channel);
    detail::encode_affine(channel, tile.tokens, 1, 4, out, c * tile.tokens, parameters + 4 * c);
  }
}
ASSAY_HOST_DEVICE void kvquant_4_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  const int d = tile.head_dim, bytes = detail::affine_row_bytes(d, d, 4);
  if (tile.side == KvSide::kValue) {
    for (int t = 0; t < tile.tokens; ++t) detail::decode_affine_row(in + t * bytes, d, d, 4, rows + t * d);
    return;
  }
  const uint8_t* parameters = in + d * tile.tokens / 2;
  for (int c = 0; c < d; ++c) {
    detail::decode_affine(in, c * tile.tokens, 4, parameters + 4 * c, tile.tokens, d, rows + c);
  }
  const uint8_t* kept = parameters + 4 * d;
  for (int i = 0; i < kvquant_kept(tile); ++i) {
    std::memcpy(rows + detail::load_half(kept + 6 * i), kept + 6 * i + 2, sizeof(float));
  }
}

}  // namespace assay::kv
