// Prometheus text as the sweep needs it: one number per family, labels summed, so that a level's share is a difference.
//
// Threads: pure. Errors: lines that are no samples are skipped.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace assay::sweep {

struct MetricsSnapshot {
  std::map<std::string, double> counters;  // *_total, *_sum, *_count: sum over the label sets
  std::map<std::string, double> worst;     // assay_meter_*worst: largest over the label sets
};

// Families of the process and the language runtime (process_, python_, go_, http_) are left out.
MetricsSnapshot parse_metrics(std::string_view text);

// Counters that moved. Families missing before count from zero.
std::map<std::string, double> counter_changes(const MetricsSnapshot& before, const MetricsSnapshot& after);

}  // namespace assay::sweep
