// Shares with their uncertainty, and quantiles.
//
// Threads: pure functions. Errors: none; NaN where there is nothing to count.
#pragma once

#include <cstdint>
#include <vector>

namespace assay {

// hits of total with Wilson's score interval at 95 %.
struct Share {
  int64_t hits = 0, total = 0;
  double value() const;
  double low() const;
  double high() const;
};

// Element at position q (n - 1) of ascending `sorted`, rounded to the nearest. NaN when there is none.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace assay
