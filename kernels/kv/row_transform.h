// What happens to a row of one head before it is quantised, and to the query that meets it: outlier channels taken out,
// balance (key / lambda, query * lambda), rotation by R = H D / sqrt(d), D random signs, H the Hadamard matrix.
// q.k = q_B.k_B + (R Lambda q_N).(R Lambda^-1 k_N), B the bypassed channels. All in float; the rounding is
// rotation_margin() of the row's norm. Every output element is a fixed tree of sums (stage width 1, 2, 4, ...), so a
// cooperative kernel that keeps the stages' order gets the same bits.
// Plain functions on caller-owned arrays of head_dim floats. head_dim is a power of two, 16 to kMaxHeadDim.
#pragma once

#include "kernels/kv/radius.h"

namespace assay::kv {

constexpr int kMaxHeadDim = 512;
constexpr uint64_t kRotationSeed = 0x41737361792e5231u;  // part of the stored format: never changes

// Settings of one (layer, KV head); the arrays belong to the caller.
struct RowTransform {
  int head_dim = 0;
  const float* signs = nullptr;      // [head_dim] from rotation_signs: rotate; null = do not
  const float* lambda = nullptr;     // [head_dim] balance of keys and queries, finite and positive; null = none
  const uint16_t* bypass = nullptr;  // [bypass_count] channels stored apart in model dtype
  int bypass_count = 0;
};

// Fills signs[head_dim] with the diagonal of D, -1 or +1; the same for every head.
ASSAY_HOST_DEVICE void rotation_signs(int head_dim, float* signs) {
  for (int c = 0; c < head_dim; ++c) {
    const uint32_t word = random_word(RandomStream::kRotationSigns, kRotationSeed, 0, 0, 0, static_cast<uint32_t>(c));
    signs[c] = (word >> 31) != 0u ? -1.0f : 1.0f;
  }
}

// x -> H x, unnormalised.
ASSAY_HOST_DEVICE void hadamard(float* x, int head_dim) {
  for (int width = 1; width < head_dim; width *= 2) {
    for (int block = 0; block < head_dim; block += 2 * width) {
      for (int i = block; i < block + width; ++i) {
        const float a = x[i], b = x[i + width];
        x[i] = a + b;
        x[i + width] = a - b;
      }
    }
  }
}

ASSAY_HOST_DEVICE float rotation_norm(int head_dim) {
  return 1.0f / std::sqrt(static_cast<float>(head_dim));
}

// x -> R x in place.
ASSAY_HOST_DEVICE void rotate(const float* signs, float* x, int head_dim) {
  for (int c = 0; c < head_dim; ++c) x[c] *= signs[c];
  hadamard(x, head_dim);
  const float norm = rotation_norm(head_dim);
  for (int c = 0; c < head_dim; ++c) x[c] = multiply(x[c], norm);
}

// x -> R^T x in place: a head's output over rotated values, back in the model's channels.
ASSAY_HOST_DEVICE void rotate_back(const float* signs, float* x, int head_dim) {
  hadamard(x, head_dim);
  const float norm = rotation_norm(head_dim);
  for (int c = 0; c < head_dim; ++c) x[c] = multiply(x[c], norm) * signs[c];
}

namespace detail {
ASSAY_HOST_DEVICE void copy_without_bypass(const RowTransform& t, const float* from, float* to) {
  for (int c = 0; c < t.head_dim; ++c) to[c] = from[c];
  for (int i = 0; i < t.bypass_count; ++i) to[t.bypass[i]] = 0.0f;
}
}  // namespace detail

// out = R Lambda^-1 key_N.
ASSAY_HOST_DEVICE void transform_key(const RowTransform& t, const float* key, float* out) {
  detail::copy_without_bypass(t, key, out);
  if (t.lambda != nullptr) {
    for (int c = 0; c < t.head_dim; ++c) out[c] = divide(out[c], t.lambda[c]);
  }
  if (t.signs != nullptr) rotate(t.signs, out, t.head_dim);
}

// out = R Lambda query_N.
ASSAY_HOST_DEVICE void transform_query(const RowTransform& t, const float* query, float* out) {
  detail::copy_without_bypass(t, query, out);
  if (t.lambda != nullptr) {
    for (int c = 0; c < t.head_dim; ++c) out[c] = multiply(out[c], t.lambda[c]);
  }
  if (t.signs != nullptr) rotate(t.signs, out, t.head_dim);
}

// out = R value; values are neither balanced nor bypassed.
ASSAY_HOST_DEVICE void transform_value(const RowTransform& t, const float* value, float* out) {
  for (int c = 0; c < t.head_dim; ++c) out[c] = value[c];
  if (t.signs != nullptr) rotate(t.signs, out, t.head_dim);
}

// Rounding of a key (and of the query that meets it) on its way through the transform, as the witness carries it.
// Balance alone costs one rounding; it is charged as a whole rotation.
ASSAY_HOST_DEVICE ArithmeticMargins transform_margins(const RowTransform& t) {
  return split_query_margins(t.head_dim, t.signs != nullptr || t.lambda != nullptr);
}

// A power of two that brings a transformed query to a norm near 2^8: far from fp16's subnormals and from its largest
// number. The logit is multiplied by its inverse afterwards (exact). `norm` is what norm_up gave for the query, and the
// scaled query's bound is norm * query_scale(norm) >= 256. 1 for a query that is not finite.
ASSAY_HOST_DEVICE float query_scale(float norm) {
  const int exponent = static_cast<int>(float_bits(norm) >> 23) - 127;  // norm in [2^exponent, 2^(exponent + 1))
  return exponent == 128 ? 1.0f : float_from_bits(static_cast<uint32_t>(8 - exponent + 127) << 23);
}

// The two halves of a scaled query channel: x = high + low to 2^-22 of x, or 2^-25 where `low` is subnormal.
struct QueryHalves {
  uint16_t high, low;
};
ASSAY_HOST_DEVICE QueryHalves split_query(float x) {
  const uint16_t high = half_nearest(x);
  return QueryHalves{high, half_nearest(x - half_to_float(high))};
}

}  // namespace assay::kv
