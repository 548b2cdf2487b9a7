// What the trials share: their random numbers, and the count of one check.
//
// Threads: values of one run. Errors: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/api/verify.h"

namespace assay {

class TrialRandom {
 public:
  explicit TrialRandom(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() { return normal_(engine_); }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

// `truth` must not exceed `bound`; a NaN on either side is a violation.
inline void count(VerifyCheck& check, long double truth, long double bound) {
  ++check.checks;
  check.violations += !(truth <= bound);
  // Bounds at the edge of the arithmetic say nothing about tightness.
  if (bound > 1e-5L && bound < 1e30L) check.tightest = std::max(check.tightest, static_cast<double>(truth / bound));
}

// The parts of a run; each returns its checks.
std::vector<VerifyCheck> verify_bounds(const VerifyOptions& options);
std::vector<VerifyCheck> verify_transform(const VerifyOptions& options);
std::vector<VerifyCheck> verify_codecs(const VerifyOptions& options);
std::vector<VerifyCheck> verify_kernels(const VerifyOptions& options);

}  // namespace assay
