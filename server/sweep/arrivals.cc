#include "server/sweep/arrivals.h"

#include <random>

namespace assay::sweep {

std::vector<double> plan_arrivals(const ArrivalPlan& plan) {
  std::mt19937_64 random(plan.seed);
  // Mean gap = shape * scale = 1 / rate whatever the shape.
  std::gamma_distribution<double> gap(plan.burstiness, 1.0 / (plan.rate_per_s * plan.burstiness));
  std::vector<double> times;
  double now_s = 0.0;
  const auto full = [&] {
    return (plan.max_requests > 0 && static_cast<int64_t>(times.size()) >= plan.max_requests) ||
           (plan.max_seconds > 0.0 && now_s >= plan.max_seconds);
  };
  while (!full()) {
    times.push_back(now_s);
    now_s += gap(random);
  }
  return times;
}

}  // namespace assay::sweep
