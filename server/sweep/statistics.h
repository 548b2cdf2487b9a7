// Order statistics of measured samples: the one definition of "mean", "median" and "p99" that every number of the sweep
// uses.
//
// Threads: pure functions on values.
// Errors: none; an empty sample gives count 0 and NaN everywhere else, which the writers show as empty or null.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::sweep {

// Quantile q in [0, 1] of ascending `sorted` by linear interpolation between the two closest ranks: position q * (n -
// 1). NaN when `sorted` is empty.
double quantile_of_sorted(const std::vector<double>& sorted, double q);

// In the unit of the samples.
struct Distribution {
  int64_t count = 0;
  double mean, min, median, p90, p95, p99, p99_9, max;  // NaN when count = 0
};

Distribution describe(std::vector<double> samples);

}  // namespace assay::sweep
