// The schemes a pool can *observe*: common quantisers of other servers, each a pair of plain functions over one tile of
// rows, with its size. None of them carries a bound; the pool stores a band witness of the keys and rho of the values
// beside them (radius.h), computed from what decode returns.
//
//   int64_t X_bytes(tile)                    bytes of one encoded tile
//   void    X_encode(tile, rows, out)        rows[tokens][head_dim] -> out[X_bytes]
//   void    X_decode(tile, in, rows)         back
//
// A group that is not finite, or too large for fp16 parameters, decodes to zeros (fp8 and kept-exact elements keep a
// NaN): its witness is then infinite or huge. head_dim: a power of two, 16 to kMaxHeadDim. No errors, no allocation.
#pragma once

#include "kernels/core/dtype.h"
#include "kernels/kv/codec.h"

namespace assay::kv {

enum class KvSide : uint8_t { kKey, kValue };

constexpr int kTokenTile = 16;    // tile of schemes that treat each token alone
constexpr int kChannelTile = 32;  // tile of schemes with one scale per channel

// What a scheme may need to know about a tile.
struct TileContext {
  int head_dim = 0;
  int tokens = kTokenTile;
  KvSide side = KvSide::kKey;
  DType dtype = DType::kF32;  // identity: element type of the stored rows
  float static_scale = 1.0f;  // rtn-int8-tensor: of this layer, KV head and side; finite, positive
  uint64_t seed = 0;          // stochastic-int8: with layer, KV head and first slot, the counter of its draws
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint32_t first_slot = 0;
};

namespace detail {

ASSAY_HOST_DEVICE void store_half(uint8_t* out, uint16_t bits) {
  std::memcpy(out, &bits, sizeof bits);
}
ASSAY_HOST_DEVICE uint16_t load_half(const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in, sizeof bits);
  return bits;
}

// Code `index` of a packed array of 2-, 4- or 8-bit codes.
ASSAY_HOST_DEVICE void store_code(uint8_t* codes, int index, int bits, int code) {
  const int bit = index * bits;
  const uint32_t mask = ((1u << bits) - 1u) << (bit % 8);
  codes[bit / 8] = static_cast<uint8_t>((codes[bit / 8] & ~mask) | (static_cast<uint32_t>(code) << (bit % 8)));
}
ASSAY_HOST_DEVICE int load_code(const uint8_t* codes, int index, int bits) {
  const int bit = index * bits;
  return (codes[bit / 8] >> (bit % 8)) & ((1 << bits) - 1);
}

// Nearest integer in [low, high]; a NaN becomes low.
ASSAY_HOST_DEVICE int round_clamped(float x, float low, float high) {
  if (!(x > low)) return static_cast<int>(low);
  return static_cast<int>(round_to_integer(x < high ? x : high));
}

// Affine code of a group: x ~ zero + scale * code. Both fp16; scale 0 = all equal to zero.
struct AffineGroup {
  uint16_t scale, zero;
};

// Parameters for codes 0..top over the values in [low, high]; zeros if that is not finite or does not fit.
ASSAY_HOST_DEVICE AffineGroup affine_group(float low, float high, int top) {
  const uint16_t zero = half_down(low);
  const uint16_t scale = half_up(divide(high - half_to_float(zero), static_cast<float>(top)));
  const bool usable = is_finite(half_to_float(zero)) && is_finite(half_to_float(scale)) && is_finite(high);
  return usable ? AffineGroup{scale, zero} : AffineGroup{0, 0};
}
ASSAY_HOST_DEVICE int affine_code(AffineGroup group, float x, int top) {
  if (group.scale == 0) return 0;
  return round_clamped(divide(x - half_to_float(group.zero), half_to_float(group.scale)), 0.0f,
                       static_cast<float>(top));
}
ASSAY_HOST_DEVICE float affine_value(AffineGroup group, int code) {
  return half_to_float(group.zero) + multiply(half_to_float(group.scale), static_cast<float>(code));
}

// A group of `count` values `stride` apart, as codes of `bits` bits from `first_code` on. 4 bytes of parameters.
ASSAY_HOST_DEVICE void encode_affine(const float* x, int count, int stride, int bits, uint8_t* codes, int first_code,
                                     uint8_t* parameters) {
  float low = x[0], high = x[0];
  for (int i = 0; i < count; ++i) {
    const float value = x[i * stride];
    low = value == value ? min_of(low, value) : -infinity();
    high = max_of(high, value);
  }
  const int top = (1 << bits) - 1;
  const AffineGroup group = affine_group(low, high, top);
  store_half(parameters, group.scale);
  store_half(parameters + 2, group.zero);
  for (int i = 0; i < count; ++i) store_code(codes, first_code + i, bits, affine_code(group, x[i * stride], top));
}
ASSAY_HOST_DEVICE void decode_affine(const uint8_t* codes, int first_code, int bits, const uint8_t* parameters,
                                     int count, int stride, float* x) {
  const AffineGroup group{load_half(parameters), load_half(parameters + 2)};
  for (int i = 0; i < count; ++i) x[i * stride] = affine_value(group, load_code(codes, first_code + i, bits));
}

// One token in affine groups of `size` channels: codes, then parameters.
ASSAY_HOST_DEVICE int affine_row_bytes(int head_dim, int size, int bits) {
  return head_dim * bits / 8 + 4 * (head_dim / size);
}
ASSAY_HOST_DEVICE void encode_affine_row(const float* x, int head_dim, int size, int bits, uint8_t* out) {
  for (int g = 0; g < head_dim / size; ++g) {
    encode_affine(x + g * size, size, 1, bits, out, g * size, out + head_dim * bits / 8 + 4 * g);
  }
}
ASSAY_HOST_DEVICE void decode_affine_row(const uint8_t* in, int head_dim, int size, int bits, float* x) {
  for (int g = 0; g < head_dim / size; ++g) {
    decode_affine(in, g * size, bits, in + head_dim * bits / 8 + 4 * g, size, 1, x + g * size);
  }
}

// One token in symmetric groups of 32 channels with levels -top..top, stored as level + top + 1: codes, then scales.
ASSAY_HOST_DEVICE int symmetric_row_bytes(int head_dim, int bits) {
  return head_dim * bits / 8 + 2 * group_count(head_dim);
}
ASSAY_HOST_DEVICE void encode_symmetric_row(const float* x, int head_dim, int bits, uint8_t* out) {
  const int size = group_channels(head_dim), top = (1 << (bits - 1)) - 1;
  for (int g = 0; g < group_count(head_dim); ++g) {
    float amax = 0;
    for (int c = g * size; c < (g + 1) * size; ++c) amax = magnitude_or_nan(amax, x[c]);
    uint16_t scale_bits = half_up(divide(amax, static_cast<float>(top)));
    if (scale_bits == kHalfInfinity) scale_bits = 0;
    const float scale = half_to_float(scale_bits), limit = static_cast<float>(top);
    store_half(out + head_dim * bits / 8 + 2 * g, scale_bits);
    for (int c = g * size; c < (g + 1) * size; ++c) {
      const int level = scale > 0 ? round_clamped(divide(x[c], scale), -limit, limit) : 0;
      store_code(out, c, bits, level + top + 1);
    }
  }
}
ASSAY_HOST_DEVICE void decode_symmetric_row(const uint8_t* in, int head_dim, int bits, float* x) {
  const int size = group_channels(head_dim), top = (1 << (bits - 1)) - 1;
  for (int c = 0; c < head_dim; ++c) {
    const float scale = half_to_float(load_half(in + head_dim * bits / 8 + 2 * (c / size)));
    x[c] = multiply(scale, static_cast<float>(load_code(in, c, bits) - top - 1));
  }
}

}  // namespace detail

// ---- rtn-int8, rtn-int4: symmetric, per token, groups of 32 channels, one fp16 scale each

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

// ---- rtn-int8-tensor: one scale per layer and KV head from calibration, saturating

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

// ---- fp8-e4m3: a cast, saturating at 448

ASSAY_HOST_DEVICE int64_t fp8_e4m3_bytes(const TileContext& tile) {
  return int64_t{tile.tokens} * tile.head_dim;
}
ASSAY_HOST_DEVICE void fp8_e4m3_encode(const TileContext& tile, const float* rows, uint8_t* out) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) out[i] = e4m3_saturate(rows[i]);
}
ASSAY_HOST_DEVICE void fp8_e4m3_decode(const TileContext& tile, const uint8_t* in, float* rows) {
  for (int i = 0; i < tile.tokens * tile.head_dim; ++i) rows[i] = e4m3_to_float(in[i]);
}

// ---- kivi-2: keys per channel over 32 tokens, values per token in groups of 32 channels; asymmetric, 2 bits

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

// ---- kvquant-4: keys per channel over 32 tokens with the largest 1 % of the tile kept exact, values per token; 4 bits

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

// ---- stochastic-int8: rtn-int8 with floor(x / s + u), u uniform in [0, 1): the negative control. Unbiased, but its
// residual reaches a whole step and is not independent of x; no dither radius holds for it.

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

// ---- identity: the rows in their own dtype

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
