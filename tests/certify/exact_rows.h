// Rows, queries and products for the codec tests: hostile inputs, and exact (long double) versions of what the headers
// do in float. Products of two floats are exact in long double, sums good to 2^-63.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kv/row_transform.h"

namespace assay::kv::testing {

using Row = std::vector<float>;
using ExactRow = std::vector<long double>;

inline long double dot(const Row& a, const Row& b) {
  long double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<long double>(a[i]) * b[i];
  return sum;
}

inline long double norm(const ExactRow& x) {
  long double sum = 0;
  for (long double value : x) sum += value * value;
  return std::sqrt(sum);
}

inline ExactRow exact(const Row& x) {
  return ExactRow(x.begin(), x.end());
}

// R x = H D x / sqrt(d), element by element from the definition of H.
inline ExactRow exact_rotation(const Row& signs, const ExactRow& x) {
  const size_t d = x.size();
  ExactRow out(d);
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j < d; ++j) out[i] += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * signs[j] * x[j];
    out[i] /= std::sqrt(static_cast<long double>(d));
  }
  return out;
}

// R^T x.
inline ExactRow exact_rotation_back(const Row& signs, const ExactRow& x) {
  ExactRow out = exact_rotation(Row(x.size(), 1.0f), x);
  for (size_t i = 0; i < x.size(); ++i) out[i] *= signs[i];
  return out;
}

// Source of hostile rows.
class RowSource {
 public:
  RowSource(uint64_t seed, int head_dim) : rng_(seed), head_dim_(static_cast<size_t>(head_dim)) {}

  double uniform() { return std::uniform_real_distribution<double>()(rng_); }
  double normal() { return std::normal_distribution<double>()(rng_); }
  uint64_t below(uint64_t n) { return rng_() % n; }

  Row gaussian(double size) {
    Row x(head_dim_);
    for (float& value : x) value = static_cast<float>(size * normal());
    return x;
  }

  // Gaussian, massive channels, one channel, all equal, two magnitudes, signs only; sizes 1e-36 to 1e4, or bf16 values.
  Row hostile() {
    const double size = below(3) == 0 ? std::pow(10.0, (below(2) == 0 ? -36 : -8) * uniform() + 4 * uniform()) : 1.0;
    Row x = gaussian(size);
    switch (below(7)) {
      case 0:
        for (size_t i = 0; i < 4; ++i) x[below(head_dim_)] *= 60;
        break;
      case 1:
        x.assign(head_dim_, 0.0f);
        x[below(head_dim_)] = static_cast<float>(size);
        break;
      case 2:
        x.assign(head_dim_, static_cast<float>(size));
        break;
      case 3:
        for (size_t i = 0; i < head_dim_ / 2; ++i) x[i] *= 1e-4f;
        break;
      case 4:
        for (float& value : x) value = std::copysign(static_cast<float>(size), value);
        break;
      default:
        break;
    }
    if (below(2) == 0) {
      for (float& value : x) value = bf16_to_float(bf16_nearest(value));
    }
    return x;
  }

  // Balance of a head: clamped powers, spread over decades.
  Row balance() {
    Row lambda(head_dim_);
    for (float& value : lambda) value = static_cast<float>(std::pow(10.0, 1.5 * normal() / 2));
    return lambda;
  }

 private:
  std::mt19937_64 rng_;
  size_t head_dim_;
};

inline Row signs_of(int head_dim) {
  Row signs(static_cast<size_t>(head_dim));
  rotation_signs(head_dim, signs.data());
  return signs;
}

}  // namespace assay::kv::testing
