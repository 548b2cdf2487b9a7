// The quantisers of the certified pools: encode and decode of one row (one token of one KV head, key or value). The
// only definition of each; what the row goes through first is row_transform.h, where its bytes lie is fragment_order.h.
//   certified  INT8, one fp16 scale a row, one fp16 bound (witness of a key, rho of a value); dither optional
//   witcert    INT8, one fp16 scale per group of 32 channels; keys with dither and no witness, values rounded to
//   nearest
// Rows are arrays of head_dim floats after the transform; payloads are plain row major; arrays belong to the caller.
// Errors do not exist here: a row that is not finite, or too large for an fp16 scale, is stored as *exact-only*, which
// no bound can certify (certified: bound = +infinity; witcert: the group's scale = +infinity).
#pragma once

#include "kernels/kv/row_transform.h"

namespace assay::kv {

constexpr int kGroupChannels = 32;  // of a witcert scale, or head_dim where that is less

ASSAY_HOST_DEVICE int group_channels(int head_dim) {
  return head_dim < kGroupChannels ? head_dim : kGroupChannels;
}
ASSAY_HOST_DEVICE int group_count(int head_dim) {
  return head_dim / group_channels(head_dim);
}

// ---- One element

// The least fp16 number s with 126.5 s >= amax, so that |x| / s + 1/2 <= 127 for every |x| <= amax and nothing clips.
// 0 for amax = 0; +infinity when it does not fit (amax > 8.28e6) or amax is not finite.
ASSAY_HOST_DEVICE uint16_t scale_bits_from_amax(float amax) {
  const float quotient = divide(amax, 126.5f);
  if (!(quotient <= kHalfMax)) return kHalfInfinity;
  uint16_t bits = half_up(quotient);
  // The quotient itself may have been rounded down onto a half; 126.5 s is exact in float.
  if (bits < kHalfInfinity && half_to_float(bits) * 126.5f < amax) ++bits;
  return bits;
}

// |x| that keeps a NaN: the largest magnitude of a row must not hide one.
ASSAY_HOST_DEVICE float magnitude_or_nan(float so_far, float x) {
  const float magnitude = x < 0 ? -x : x;
  return magnitude <= so_far ? so_far : magnitude == magnitude ? max_of(so_far, magnitude) : infinity();
}

// round(x / s + xi), the stored integer, in [-127, 127] for s from scale_bits_from_amax and xi in [-1/2, 1/2). s > 0.
ASSAY_HOST_DEVICE int8_t quantise(float x, float scale, float xi) {
  return static_cast<int8_t>(round_to_integer(divide(x, scale) + xi));
}

// s (n - xi): n - xi is exact in float; so is the whole without dither.
ASSAY_HOST_DEVICE float dequantise(int8_t level, float scale, float xi) {
  return multiply(scale, static_cast<float>(level) - xi);
}

// Payload byte of a level where bytes are unsigned (the fragment-order pools): 1..255, 128 is zero.
ASSAY_HOST_DEVICE uint8_t biased_level(int8_t level) {
  return static_cast<uint8_t>(static_cast<int>(level) + 128);
}
ASSAY_HOST_DEVICE int8_t level_from_biased(uint8_t byte) {
  return static_cast<int8_t>(static_cast<int>(byte) - 128);
}

// ---- Certified rows

// What is stored beside the payload of one row; both fp16 bits.
struct CertifiedSide {
  uint16_t scale;
  uint16_t bound;  // key: witness w_t; value: rho_t; +infinity = exact-only
};

ASSAY_HOST_DEVICE float largest_magnitude(const float* x, int count) {
  float amax = 0;
  for (int c = 0; c < count; ++c) amax = magnitude_or_nan(amax, x[c]);
  return amax;
}

ASSAY_HOST_DEVICE uint16_t scale_bits_of(const float* x, int count) {
  return scale_bits_from_amax(largest_magnitude(x, count));
}

// Squares for the bound of a row, summed in channel order.
struct RowSquares {
  float residual = 0, exact = 0, decoded = 0;
};

ASSAY_HOST_DEVICE void add_squares(RowSquares& sums, float exact, float decoded) {
  const float residual = decoded - exact;
  sums.residual += residual * residual;
  sums.exact += exact * exact;
  sums.decoded += decoded * decoded;
}

// Bound of a key row: its witness. With dither the logit has a second product, q.xi, whose terms add up to 2 s sqrt(d)
// in |k^'| at most.
ASSAY_HOST_DEVICE uint16_t key_bound(const RowSquares& sums, float scale, int head_dim, bool dithered,
                                     const ArithmeticMargins& margins) {
  const float dither = dithered ? 2.0f * scale * std::sqrt(static_cast<float>(head_dim)) : 0.0f;
  return witness_from_norms(std::sqrt(sums.residual), std::sqrt(sums.exact), std::sqrt(sums.decoded) + dither, head_dim,
                            margins);
}

// Bound of a value row: rho = |v^' - R v| with the rotation of v and, relative to |v^'|, that of the output back.
ASSAY_HOST_DEVICE uint16_t value_bound(const RowSquares& sums, int head_dim, const ArithmeticMargins& margins) {
  return witness_from_norms(std::sqrt(sums.residual), std::sqrt(sums.exact), std::sqrt(sums.decoded), head_dim,
                            ArithmeticMargins{margins.rotation, margins.rotation, 0.0f});
}

namespace detail {
// Levels of a row with a given scale, and the squares of its residual. A scale of 0 or +infinity stores zeros.
ASSAY_HOST_DEVICE RowSquares quantise_row(const float* x, int count, float scale, const float* xi, int8_t* levels) {
  RowSquares sums;
  const bool usable = scale > 0 && is_finite(scale);
  for (int c = 0; c < count; ++c) {
    const float dither = xi != nullptr ? xi[c] : 0.0f;
    levels[c] = usable ? quantise(x[c], scale, dither) : int8_t{0};
    add_squares(sums, x[c], usable ? dequantise(levels[c], scale, dither) : 0.0f);
  }
  return sums;
}
}  // namespace detail

// ---- The scale of a key without dither: any scale from the least on is valid, and rounding treats a row better under some
// than under others. Of kKeyScales of them, kKeyScaleStep halves apart, the one with the least residual is taken; without
// dither a row may also reach to 127.4, which still rounds to 127. Radii are 8 % smaller at 64 channels, 6 % at 128. Not with
// dither: its scale must not depend on it.
constexpr int kKeyScales = 8;
constexpr int kKeyScaleStep = 6;
constexpr float kKeyReach = 126.5f / 127.4f;
constexpr int kRowLanes = 32;  // a row's channels are shared by so many lanes, side by side

// Sum of squared residuals of one lane's channels. Every product has its own rounding, so that all backends choose alike.
ASSAY_HOST_DEVICE float lane_residual(const float* x, int count, float scale) {
  float sum = 0;
  for (int c = 0; c < count; ++c) {
    const float residual = dequantise(quantise(x[c], scale, 0.0f), scale, 0.0f) - x[c];
    sum += multiply(residual, residual);
  }
  return sum;
}

// Calls residual_of(scale), the row's sum, for each candidate from `least` on; the first of the least wins.
template <class ResidualOf>
ASSAY_HOST_DEVICE uint16_t choose_key_scale(uint16_t least, const ResidualOf& residual_of) {
  uint16_t best = least;
  float least_residual = residual_of(half_to_float(least));
  for (int i = 1; i < kKeyScales; ++i) {
    const int bits = least + i * kKeyScaleStep;
    if (bits > kHalfMaxFinite) break;
    const float residual = residual_of(half_to_float(static_cast<uint16_t>(bits)));
    if (!(residual < least_residual)) continue;
    best = static_cast<uint16_t>(bits);
    least_residual = residual;
  }
  return best;
}

namespace detail {
// The row's sum of squared residuals: lanes first, then a butterfly over them, as a warp adds.
ASSAY_HOST_DEVICE float row_residual(const float* x, int count, float scale) {
  float sums[kRowLanes] = {};
  const int lanes = count < kRowLanes ? count : kRowLanes, each = count / lanes;
  for (int lane = 0; lane < lanes; ++lane) sums[lane] = lane_residual(x + lane * each, each, scale);
  for (int width = kRowLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}
}  // namespace detail

// Key row x[head_dim] = transform_key(k) -> levels[head_dim] and its side. xi[head_dim], or null without dither.
// `margins` = transform_margins of the pool.
ASSAY_HOST_DEVICE CertifiedSide encode_certified_key(const float* x, int head_dim, const float* xi,
                                                     const ArithmeticMargins& margins, int8_t* levels) {
  const float amax = largest_magnitude(x, head_dim);
  uint16_t bits = scale_bits_from_amax(xi == nullptr ? multiply(amax, kKeyReach) : amax);
  if (xi == nullptr && bits != 0 && bits != kHalfInfinity) {
    bits = choose_key_scale(bits, [&](float s) { return detail::row_residual(x, head_dim, s); });
  }
  const float scale = half_to_float(bits);
  const RowSquares sums = detail::quantise_row(x, head_dim, scale, xi, levels);
  if (bits == 0) return CertifiedSide{0, 0};
  if (bits == kHalfInfinity) return CertifiedSide{0, kHalfInfinity};
  return CertifiedSide{bits, key_bound(sums, scale, head_dim, xi != nullptr, margins)};
}

// Value row x[head_dim] = transform_value(v) -> levels and its side.
ASSAY_HOST_DEVICE CertifiedSide encode_certified_value(const float* x, int head_dim, const ArithmeticMargins& margins,
                                                       int8_t* levels) {
  const uint16_t bits = scale_bits_of(x, head_dim);
  const RowSquares sums = detail::quantise_row(x, head_dim, half_to_float(bits), nullptr, levels);
  if (bits == 0) return CertifiedSide{0, 0};
  if (bits == kHalfInfinity) return CertifiedSide{0, kHalfInfinity};
  return CertifiedSide{bits, value_bound(sums, head_dim, margins)};
}

// Transformed row back as floats, x[head_dim]. xi as at encode time.
ASSAY_HOST_DEVICE void decode_certified(const int8_t* levels, CertifiedSide side, int head_dim, const float* xi,
                                        float* x) {
  const float scale = half_to_float(side.scale);
  for (int c = 0; c < head_dim; ++c) x[c] = dequantise(levels[c], scale, xi != nullptr ? xi[c] : 0.0f);
}

// ---- Witcert rows: scales per group

// Row x[head_dim] -> levels[head_dim], scales[group_count] (fp16 bits; +infinity = exact-only). Bypassed channels are
// zero in x already (transform_key), so they are out of amax. xi as above; null for values.
ASSAY_HOST_DEVICE void encode_groups(const float* x, int head_dim, const float* xi, int8_t* levels, uint16_t* scales) {
  const int size = group_channels(head_dim);
  for (int g = 0; g < group_count(head_dim); ++g) {
    const int first = g * size;
    scales[g] = scale_bits_of(x + first, size);
    detail::quantise_row(x + first, size, half_to_float(scales[g]), xi != nullptr ? xi + first : nullptr,
                         levels + first);
  }
}

// Row back as floats; an exact-only group decodes to zero.
ASSAY_HOST_DEVICE void decode_groups(const int8_t* levels, const uint16_t* scales, int head_dim, const float* xi,
                                     float* x) {
  const int size = group_channels(head_dim);
  for (int c = 0; c < head_dim; ++c) {
    const uint16_t bits = scales[c / size];
    const float scale = bits == kHalfInfinity ? 0.0f : half_to_float(bits);
    x[c] = dequantise(levels[c], scale, xi != nullptr ? xi[c] : 0.0f);
  }
}

// Query side of the group scales: Q_g^2 and sum |q_c| per group, as dither_radius takes them.
ASSAY_HOST_DEVICE void group_query_sums(const float* query, int head_dim, float* square_sum, float* absolute_sum) {
  const int size = group_channels(head_dim);
  for (int g = 0; g < group_count(head_dim); ++g) {
    square_sum[g] = absolute_sum[g] = 0;
    for (int c = g * size; c < (g + 1) * size; ++c) {
      square_sum[g] += query[c] * query[c];
      absolute_sum[g] += query[c] < 0 ? -query[c] : query[c];
    }
  }
}

}  // namespace assay::kv
