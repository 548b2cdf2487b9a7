// What every header of kernels/kv shares: functions that are the same code on the host and on the device, and the few
// arithmetic steps that must not depend on the compiler's flags there.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define ASSAY_HOST_DEVICE __host__ __device__ inline
#else
#define ASSAY_HOST_DEVICE inline
#endif

namespace assay::kv {

// Reinterprets the bits of a float, or back. std::bit_cast and numeric_limits are host only for nvcc.
ASSAY_HOST_DEVICE uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
ASSAY_HOST_DEVICE float float_from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
ASSAY_HOST_DEVICE float infinity() {
  return float_from_bits(0x7f800000u);
}

// False for NaN and both infinities.
template <class T>
ASSAY_HOST_DEVICE bool is_finite(T x) {
  return x - x == T(0);
}

// The larger (smaller) of two numbers; a NaN in `a` is dropped, one in `b` too. Never use where a NaN must survive.
template <class T>
ASSAY_HOST_DEVICE T max_of(T a, T b) {
  return b > a ? b : a;
}
template <class T>
ASSAY_HOST_DEVICE T min_of(T a, T b) {
  return b < a ? b : a;
}

// a / b rounded to nearest, also where the device is told to divide fast: a quantiser whose quotient is off by one unit
// can clip.
ASSAY_HOST_DEVICE float divide(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// a * b with its own rounding: never fused into a following sum, so that host and device get the same bits.
ASSAY_HOST_DEVICE float multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// The integer nearest to x, ties to even, for |x| < 2^22; exact on both sides (no library call, no mode).
ASSAY_HOST_DEVICE float round_to_integer(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum's last bit is worth one
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fadd_rn(x, kShift), -kShift);
#else
  return (x + kShift) - kShift;
#endif
}

}  // namespace assay::kv
