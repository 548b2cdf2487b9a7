// When requests should be sent in rate mode.
//
// Threads: pure. Errors: `rate_per_s` and `burstiness` must be positive (checked by the options).
#pragma once

#include <cstdint>
#include <vector>

namespace assay::sweep {

struct ArrivalPlan {
  double rate_per_s = 1.0;
  double burstiness = 1.0;   // shape of the gamma distributed gaps: 1 = Poisson, < 1 burstier, large = even
  int64_t max_requests = 0;  // 0 = no limit
  double max_seconds = 0.0;  // 0 = no limit; one of the two limits is set
  uint64_t seed = 0;
};

// Ascending times in seconds from the start of the level; the first request is sent at once. The same plan always gives
// the same times.
std::vector<double> plan_arrivals(const ArrivalPlan& plan);

}  // namespace assay::sweep
