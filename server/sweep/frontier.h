// The picture of one or several runs: throughput against the time per output token and against the time to first token,
// one curve per run, one point per level.
//
// Threads: pure. Errors: frontier_run names what a results.json lacks.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace assay::sweep {

struct FrontierPoint {
  std::string level;  // "16" or "2.5/s"
  double output_tokens_per_s = 0.0;
  double tpot_ms = 0.0, ttft_ms = 0.0;  // medians; NaN where the level has none
  double tpot_p99_ms = 0.0, ttft_p99_ms = 0.0;
  bool client_bound = false;
};

struct FrontierRun {
  std::string label;
  std::string caption;  // what was measured, one line
  std::vector<FrontierPoint> points;
};

// From a parsed results.json.
absl::StatusOr<FrontierRun> frontier_run(const nlohmann::ordered_json& results);

std::string draw_frontier(const std::vector<FrontierRun>& runs);

}  // namespace assay::sweep
