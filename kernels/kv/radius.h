// Radii: how far a served logit can be from the exact one, |e_t| <= c_t. Two sources: a *witness* stored with the row
// (always valid, any query) and the *dither* radius from the scales alone (valid with probability 1 - delta).
// Everything here rounds upwards. Read-time arithmetic is part of the error, so its margins are in the witness.
// Pure functions on plain numbers and caller-owned arrays; no errors: what is not finite becomes +infinity.
#pragma once

#include <cmath>

#include "kernels/kv/philox.h"

namespace assay::kv {

constexpr float kUnitRoundoff = 0x1p-24f;  // of float

// Relative errors of the arithmetic around a quantiser, each a multiple of a norm.
struct ArithmeticMargins {
  float rotation = 0;  // g_rot: of a row (or query) through balance and rotation in float
  float dot = 0;       // g_dot: of the logit sum, relative to |q'| |k^'|
  float query = 0;     // g_qry: of the query operand, relative to |q'|
};

// log2 of a power of two.
ASSAY_HOST_DEVICE int log2_exact(int power_of_two) {
  int exponent = 0;
  while ((1 << exponent) < power_of_two) ++exponent;
  return exponent;
}

// One balance division, log2 d butterfly stages, the rounding of 1/sqrt(d) and the product with it. The factor carries
// the second-order terms.
ASSAY_HOST_DEVICE float rotation_margin(int head_dim) {
  return static_cast<float>(log2_exact(head_dim) + 3) * kUnitRoundoff * (1.0f + 0x1p-10f);
}

// `products` terms in one accumulator, each product and partial sum good to 2^-23 (truncating matrix units included);
// eight more for the scale, the softmax scale, log2(e) and sums of partial accumulators.
ASSAY_HOST_DEVICE float dot_margin(int products) {
  return static_cast<float>(products + 8) * 0x1p-23f;
}

// Query as halves high + low with |q'| >= 1 (split_query): 2^-22 of itself, subnormal low halves, its own transform.
ASSAY_HOST_DEVICE float query_margin(int head_dim, bool rotated) {
  const float subnormal_halves = std::sqrt(static_cast<float>(head_dim)) * 0x1p-25f * (1.0f + 0x1p-10f);
  return 0x1p-22f + subnormal_halves + (rotated ? rotation_margin(head_dim) : 0.0f);
}

// Margins of a pool whose query is split into two halves (two products per channel). They also cover a query kept in
// float with one product per channel, so both backends store the same witness.
ASSAY_HOST_DEVICE ArithmeticMargins split_query_margins(int head_dim, bool rotated) {
  return ArithmeticMargins{rotated ? rotation_margin(head_dim) : 0.0f, dot_margin(2 * head_dim),
                           query_margin(head_dim, rotated)};
}

// Margins of rows read as decoded floats with the model's own query: `d` products, nothing transformed.
ASSAY_HOST_DEVICE ArithmeticMargins plain_margins(int head_dim) {
  return ArithmeticMargins{0.0f, dot_margin(head_dim), 0.0f};
}

// Relative error of a norm of `count` floats summed in any order, with room for one rounding of each element.
ASSAY_HOST_DEVICE float norm_inflation(int count) {
  return 1.0f + static_cast<float>(2 * count + 16) * kUnitRoundoff;
}

// Upper bound of the Euclidean norm of `count` <= 512 floats whose squares were summed in float, in any order. Squares
// that underflow are covered by the last term (which also keeps the bound of a zero query times an infinite witness
// infinite instead of NaN).
ASSAY_HOST_DEVICE float norm_up_from_squares(float square_sum, int count) {
  return std::sqrt(square_sum) * norm_inflation(count) + 0x1p-58f;
}

// Upper bound of the Euclidean norm of x[count].
ASSAY_HOST_DEVICE float norm_up(const float* x, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  return norm_up_from_squares(sum, count);
}

// The witness from three float norms over `count` channels: of decoded - exact, of the exact row as the encoder saw it,
// and of the decoded row. fp16 bits, rounded up; +infinity when anything is not finite or does not fit.
// The three norms may be summed in any order; each rounding, and the squares that underflow, are covered here.
ASSAY_HOST_DEVICE uint16_t witness_from_norms(float residual, float exact, float decoded, int count,
                                              const ArithmeticMargins& margins) {
  const float raw = residual + margins.rotation * exact + (margins.dot + margins.query) * decoded;
  const float inflated = raw * norm_inflation(count) * (1.0f + 0x1p-20f) + 0x1p-50f;
  return inflated <= kHalfMax ? half_up(inflated) : kHalfInfinity;
}

// sc |q'|, rounded up, for c_t = factor * w_t in float (that product's rounding is covered). `query_norm` is an upper
// bound from norm_up of the float query; `softmax_scale` what the logits are really multiplied by.
ASSAY_HOST_DEVICE float witness_factor(float softmax_scale, float query_norm, const ArithmeticMargins& margins) {
  return softmax_scale * query_norm * (1.0f + margins.query + margins.rotation + 0x1p-20f);
}

// ---- Bands: contiguous groups of rotary pairs (c, c + d/2). Any partition of the channels gives a valid witness.

// Bands of a head: 16, or fewer where there are fewer pairs.
ASSAY_HOST_DEVICE int band_count(int head_dim) {
  return head_dim / 2 < 16 ? head_dim / 2 : 16;
}
ASSAY_HOST_DEVICE int band_of_channel(int channel, int head_dim) {
  const int half = head_dim / 2;
  return (channel % half) * band_count(head_dim) / half;
}

// Squares of x[head_dim] summed per band into sums[band_count]; y may be null (x alone) or is subtracted first.
ASSAY_HOST_DEVICE void band_squares(const float* x, const float* y, int head_dim, float* sums) {
  for (int b = 0; b < band_count(head_dim); ++b) sums[b] = 0;
  for (int c = 0; c < head_dim; ++c) {
    const float value = y != nullptr ? x[c] - y[c] : x[c];
    sums[band_of_channel(c, head_dim)] += value * value;
  }
}

// Band witness of one row: fp16 bits into witness[band_count]. exact and decoded: [head_dim].
ASSAY_HOST_DEVICE void band_witness(const float* exact, const float* decoded, int head_dim,
                                    const ArithmeticMargins& margins, uint16_t* witness) {
  float residual2[16], exact2[16], decoded2[16];
  band_squares(decoded, exact, head_dim, residual2);
  band_squares(exact, nullptr, head_dim, exact2);
  band_squares(decoded, nullptr, head_dim, decoded2);
  for (int b = 0; b < band_count(head_dim); ++b) {
    witness[b] =
        witness_from_norms(std::sqrt(residual2[b]), std::sqrt(exact2[b]), std::sqrt(decoded2[b]), head_dim, margins);
  }
}

// rho of one value row that is read as decoded: |decoded - exact|, fp16 bits rounded up. Rows: [head_dim].
ASSAY_HOST_DEVICE uint16_t value_row_bound(const float* exact, const float* decoded, int head_dim) {
  float residual = 0;
  for (int c = 0; c < head_dim; ++c) residual += (decoded[c] - exact[c]) * (decoded[c] - exact[c]);
  return witness_from_norms(std::sqrt(residual), 0.0f, 0.0f, head_dim, ArithmeticMargins{});
}

// Query side of the band radius: factor[b] = sc |q_b| rounded up, the rounding of the sum over bands included.
ASSAY_HOST_DEVICE void band_factors(float softmax_scale, const float* query, int head_dim,
                                    const ArithmeticMargins& margins, float* factor) {
  band_squares(query, nullptr, head_dim, factor);
  for (int b = 0; b < band_count(head_dim); ++b) {
    const float norm = norm_up_from_squares(factor[b], head_dim);
    factor[b] = witness_factor(softmax_scale, norm, margins) * (1.0f + 20 * kUnitRoundoff);
  }
}

// c_t = sum_b factor[b] w_{t,b}.
ASSAY_HOST_DEVICE float band_radius(const float* factor, const uint16_t* witness, int head_dim) {
  float radius = 0;
  for (int b = 0; b < band_count(head_dim); ++b) radius += factor[b] * half_to_float(witness[b]);
  return radius;
}

// ---- Dither. Conditional: see the guarantee in docs/certificate.md.

// kappa = sqrt(2 ln(2 S / delta_loc)), rounded up. tokens > 0, 0 < delta_loc <= 1.
inline float dither_kappa(double tokens, double delta_loc) {
  const double kappa = std::sqrt(2.0 * std::log(2.0 * tokens / delta_loc));
  return static_cast<float>(kappa * (1.0 + 0x1p-22));
}

// What a query (as the kernel holds it in float) contributes to the dither radius, over the channels not bypassed.
struct DitherQuery {
  const float* square_sum;    // [groups] Q_g^2: sum of q_c^2, any order
  const float* absolute_sum;  // [groups] sum of |q_c|, any order
  float norm;                 // |q'| from norm_up
};

// c_t = kappa sqrt(v_t) + beta_t for scales[groups] of `group_size` >= 16 channels each, kappa <= 1,000. The operand's
// rounding and the logit's own arithmetic enter through |q'| and |k^'| <= 127.5 sqrt(sum of s_c^2); the dither's own
// product adds 1.25 to that 127.5. What rotation does to the query's own Q_g is inside the 256.
ASSAY_HOST_DEVICE float dither_radius(float kappa, float softmax_scale, const DitherQuery& query,
                                      const uint16_t* scales, int groups, int group_size,
                                      const ArithmeticMargins& margins) {
  float variance = 0, bias = 0, square_norm = 0;
  for (int g = 0; g < groups; ++g) {
    const float s = half_to_float(scales[g]);
    variance += query.square_sum[g] * s * s;
    bias += query.absolute_sum[g] * s;
    square_norm += static_cast<float>(group_size) * s * s;
  }
  const float arithmetic = 130.0f * (margins.dot + margins.query) + 256.0f * margins.rotation;
  const float radius = kappa * std::sqrt(variance * (1.0f / 12.0f)) + kDitherBias * bias +
                       query.norm * arithmetic * std::sqrt(square_norm);
  return softmax_scale * radius * norm_inflation(groups * group_size) * (1.0f + 0x1p-18f);
}

// Radius of channels read without loss, whose sum in float is not exact: bypassed channels, or all `count` = head_dim
// of a row read from the backing store. `absolute_products` is the float sum of |q_c k_c| over them.
ASSAY_HOST_DEVICE float bypass_radius(float softmax_scale, float absolute_products, int count) {
  return softmax_scale * absolute_products * dot_margin(count) * (1.0f + 0x1p-15f);
}

// rho of a value row of `groups` scales rounded to nearest without dither: sqrt(sum_g size s_g^2) / 2, with the error
// of the quotient that was rounded (2^-18 of a step).
ASSAY_HOST_DEVICE float group_value_radius(const uint16_t* scales, int groups, int group_size) {
  float sum = 0;
  for (int g = 0; g < groups; ++g) {
    const float s = half_to_float(scales[g]);
    sum += static_cast<float>(group_size) * s * s;
  }
  return 0.5f * std::sqrt(sum) * (1.0f + 0x1p-15f);
}

}  // namespace assay::kv
