#include "server/sweep/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace assay::sweep {

double quantile_of_sorted(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double position = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = position - static_cast<double>(below);
  return sorted[below] + weight * (sorted[above] - sorted[below]);
}

Distribution describe(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  Distribution d;
  d.count = static_cast<int64_t>(samples.size());
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  d.mean = samples.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(samples.size());
  d.min = quantile_of_sorted(samples, 0.0);
  d.median = quantile_of_sorted(samples, 0.5);
  d.p90 = quantile_of_sorted(samples, 0.9);
  d.p95 = quantile_of_sorted(samples, 0.95);
  d.p99 = quantile_of_sorted(samples, 0.99);
  d.p99_9 = quantile_of_sorted(samples, 0.999);
  d.max = quantile_of_sorted(samples, 1.0);
  return d;
}

}  // namespace assay::sweep
