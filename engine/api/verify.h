// Checks on this machine that the meter's bounds hold: with this compiler, this processor, these kernels' arithmetic.
// Deterministic statements only, so every check demands zero violations at zero tolerance.
//
// Threads: run_verify on one thread, seconds at the default number of trials. Errors: none; a violation is a result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct VerifyOptions {
  int64_t trials = 100'000;  // of each bound; codecs and transforms take a share of it. At least 1
  uint64_t seed = 1;         // of the trials; the same seed repeats them
};

struct VerifyCheck {
  std::string name;
  std::string statement;  // what was checked, in words
  int64_t checks = 0;
  int64_t violations = 0;
  double tightest = 0;  // largest truth / bound seen: near 1 where the trials could hurt
};

struct VerifyReport {
  std::vector<VerifyCheck> checks;
  bool ok() const;  // no violation, and no check that checked nothing
};

VerifyReport run_verify(const VerifyOptions& options);

}  // namespace assay
