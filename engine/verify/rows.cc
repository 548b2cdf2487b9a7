#include "engine/verify/rows.h"

#include <bit>
#include <cmath>

namespace assay {

std::vector<float> hostile_row(TrialRandom& random, int head_dim) {
  const auto channel = [&] { return random.below(static_cast<uint64_t>(head_dim)); };
  const double size = random.below(3) == 0 ? std::pow(10.0, -8 + 12 * random.uniform()) : 1.0;
  std::vector<float> row(static_cast<size_t>(head_dim));
  for (float& x : row) x = static_cast<float>(size * random.normal());
  switch (random.below(7)) {
    case 0:
      for (int i = 0; i < 4; ++i) row[channel()] *= 60;
      break;
    case 1:
      row.assign(row.size(), 0.0f);
      row[channel()] = static_cast<float>(size);
      break;
    case 2:
      row.assign(row.size(), static_cast<float>(size));
      break;
    case 3:
      for (size_t i = 0; i < row.size() / 2; ++i) row[i] *= 1e-4f;
      break;
    case 4:
      for (float& x : row) x = std::copysign(static_cast<float>(size), x);
      break;
    default:
      break;
  }
  return row;
}

std::vector<float> hostile_lambda(TrialRandom& random, int head_dim) {
  std::vector<float> lambda(static_cast<size_t>(head_dim));
  for (float& x : lambda) x = static_cast<float>(std::pow(10.0, 0.75 * random.normal()));
  return lambda;
}

long double dot(const std::vector<float>& a, const std::vector<float>& b) {
  long double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<long double>(a[i]) * b[i];
  return sum;
}

long double norm(const std::vector<double>& x) {
  long double sum = 0;
  for (const double value : x) sum += static_cast<long double>(value) * value;
  return std::sqrt(sum);
}

std::vector<double> rotated(const std::vector<float>& signs, const std::vector<double>& x) {
  std::vector<double> out(x.size());
  const long double scale = 1 / std::sqrt(static_cast<long double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    long double sum = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      const long double term = static_cast<long double>(signs[j]) * x[j];
      sum += std::popcount(i & j) % 2 == 0 ? term : -term;
    }
    out[i] = static_cast<double>(sum * scale);
  }
  return out;
}

std::vector<double> rotated_back(const std::vector<float>& signs, const std::vector<double>& x) {
  std::vector<double> out = rotated(std::vector<float>(x.size(), 1.0f), x);
  for (size_t i = 0; i < x.size(); ++i) out[i] *= signs[i];
  return out;
}

}  // namespace assay
