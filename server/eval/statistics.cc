#include "server/eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay {
namespace {

constexpr double kZ = 1.959963984540054;  // 95 %, two-sided
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Centre plus sign times half the width.
double wilson(const Share& share, double sign) {
  if (share.total == 0) return kNone;
  const double n = static_cast<double>(share.total), p = share.value(), z2 = kZ * kZ;
  const double centre = p + z2 / (2 * n), half = kZ * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return std::clamp((centre + sign * half) / (1 + z2 / n), 0.0, 1.0);
}

}  // namespace

double Share::value() const {
  return total == 0 ? kNone : static_cast<double>(hits) / static_cast<double>(total);
}
double Share::low() const {
  return wilson(*this, -1);
}
double Share::high() const {
  return wilson(*this, 1);
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return kNone;
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::llround(at))];
}

}  // namespace assay
