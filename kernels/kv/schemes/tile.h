// What the schemes of observed pools share: what they may know of a tile, packed codes, affine and symmetric groups.
// No errors, no allocation; arrays belong to the caller.
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

}  // namespace assay::kv
