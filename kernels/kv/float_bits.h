// Conversions between float and the 16- and 8-bit formats of the cache, exact in every bit, with the rounding direction
// in the name: radii and scales are stored rounded up, so that what is read is never less than what was meant.
// Pure functions; every input is legal.
#pragma once

#include "kernels/kv/host_device.h"

namespace assay::kv {

constexpr uint16_t kHalfInfinity = 0x7c00;
constexpr uint16_t kHalfQuietNan = 0x7e00;
constexpr uint16_t kHalfMaxFinite = 0x7bff;  // 65,504
constexpr float kHalfMax = 65504.0f;

// fp16 bits -> float, exact. A NaN stays a NaN.
ASSAY_HOST_DEVICE float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude < 0x400u) {  // zero and subnormals: multiples of 2^-24
    return float_from_bits(sign | float_bits(static_cast<float>(magnitude) * 0x1p-24f));
  }
  const uint32_t bias = magnitude < kHalfInfinity ? 0x38000000u : 0x70000000u;
  return float_from_bits(sign | ((magnitude << 13) + bias));
}

namespace detail {

// A magnitude (sign bit clear, not NaN) cut to fp16. Straight-line integer code, so that loops over it vectorise.
struct HalfCut {
  uint32_t truncated;  // largest fp16 magnitude <= the input, at most 65,504 for finite input
  uint32_t inexact;    // 1 if something was cut
  uint32_t round_up;   // 1 if rounding to nearest, ties to even, takes the next one
};

ASSAY_HOST_DEVICE HalfCut cut_to_half(uint32_t magnitude) {
  // Everything finite from 65,536 up is cut like the float just below it; infinity becomes 65,536, which is cut
  // exactly.
  const uint32_t clamped = magnitude < 0x477fffffu ? magnitude : 0x477fffffu;
  const uint32_t bits = magnitude == 0x7f800000u ? 0x47800000u : clamped;
  const bool subnormal = bits < 0x38800000u;  // below 2^-14: multiples of 2^-24
  const uint32_t wide = 126u - (bits >> 23);
  const uint32_t shift = subnormal ? (wide < 31u ? wide : 31u) : 13u;
  // A float subnormal gets a leading bit it does not have; all that is asked of it is to be cut away entirely.
  const uint32_t kept = subnormal ? ((bits & 0x7fffffu) | 0x800000u) : bits - 0x38000000u;
  const uint32_t truncated = kept >> shift;
  const uint32_t rest = kept & ((1u << shift) - 1u);
  return HalfCut{truncated, static_cast<uint32_t>(rest != 0u) & static_cast<uint32_t>(bits != 0u),
                 static_cast<uint32_t>(rest + (truncated & 1u) > (1u << (shift - 1u)))};
}

ASSAY_HOST_DEVICE uint16_t half_with_sign(uint32_t bits, uint32_t magnitude) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(sign | (nan ? uint32_t{kHalfQuietNan} : magnitude));
}

}  // namespace detail

// float -> fp16 bits, to nearest, ties to even; 65,520 and above become infinity.
ASSAY_HOST_DEVICE uint16_t half_nearest(float x) {
  const uint32_t bits = float_bits(x);
  const detail::HalfCut cut = detail::cut_to_half(bits & 0x7fffffffu);
  return detail::half_with_sign(bits, cut.truncated + cut.round_up);
}

// The least fp16 number >= x (infinity above 65,504).
ASSAY_HOST_DEVICE uint16_t half_up(float x) {
  const uint32_t bits = float_bits(x);
  const detail::HalfCut cut = detail::cut_to_half(bits & 0x7fffffffu);
  const uint32_t away = (bits >> 31) ^ 1u;
  return detail::half_with_sign(bits, cut.truncated + (away & cut.inexact));
}

// The greatest fp16 number <= x (minus infinity below -65,504).
ASSAY_HOST_DEVICE uint16_t half_down(float x) {
  const uint32_t bits = float_bits(x);
  const detail::HalfCut cut = detail::cut_to_half(bits & 0x7fffffffu);
  const uint32_t away = bits >> 31;
  return detail::half_with_sign(bits, cut.truncated + (away & cut.inexact));
}

// bf16 bits -> float, exact.
ASSAY_HOST_DEVICE float bf16_to_float(uint16_t bf16) {
  return float_from_bits(static_cast<uint32_t>(bf16) << 16);
}

// float -> bf16 bits, to nearest, ties to even; NaN stays NaN.
ASSAY_HOST_DEVICE uint16_t bf16_nearest(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// fp8 e4m3 (no infinities, 0x7f and 0xff are NaN, largest 448) -> float, exact.
ASSAY_HOST_DEVICE float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) return float_from_bits(sign | 0x7fc00000u);
  if (magnitude < 8u) return float_from_bits(sign | float_bits(static_cast<float>(magnitude) * 0x1p-9f));
  return float_from_bits(sign | ((magnitude << 20) + 0x3c000000u));
}

// float -> e4m3 to nearest, ties to even, saturating at 448 (infinities too); NaN stays NaN.
ASSAY_HOST_DEVICE uint8_t e4m3_saturate(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and above
  if (magnitude < 0x3c800000u) {                                            // below 2^-6: multiples of 2^-9
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(round_to_integer(float_from_bits(magnitude) * 0x1p9f)));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded - 0x3c000000u) >> 20));
}

}  // namespace assay::kv
