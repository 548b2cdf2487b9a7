#include "server/ops/gate_families.h"

#include <limits>

#include "server/ops/family.h"

namespace assay {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr const char* kDeterministic = "deterministic";
constexpr const char* kConditional = "conditional";

double number(int64_t value) { return static_cast<double>(value); }

MetricFamily actions(const GateStats& stats) {
  MetricFamily result = family(MetricType::Counter, "assay_gate_actions_total", "Cells that the gate lowered, by the last rung taken");
  add_sample(result, number(stats.refined_cells), {{"rung", "refined"}});
  add_sample(result, number(stats.paged_cells), {{"rung", "paged"}});
  add_sample(result, number(stats.whole_head_cells), {{"rung", "whole_head"}});
  add_sample(result, number(stats.whole_layer_cells), {{"rung", "whole_layer"}});
  return result;
}

ClientMetric tightness_of(const AuditCounts& counts, const char* guarantee) {
  ClientMetric metric;
  metric.label = {{"guarantee", guarantee}};
  uint64_t cumulative = 0;
  for (size_t i = 0; i < counts.tightness.size(); ++i) {
    cumulative += static_cast<uint64_t>(counts.tightness[i]);
    const bool last = i == AuditCounts::kEdges.size();
    metric.histogram.bucket.push_back({cumulative, last ? std::numeric_limits<double>::infinity() : AuditCounts::kEdges[i]});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = counts.tightness_sum;
  return metric;
}

MetricFamily by_guarantee(const GateStats& stats, const char* name, const char* help, int64_t AuditCounts::*count) {
  MetricFamily result = family(MetricType::Counter, name, help);
  add_sample(result, number(stats.audit_deterministic.*count), {{"guarantee", kDeterministic}});
  add_sample(result, number(stats.audit_conditional.*count), {{"guarantee", kConditional}});
  return result;
}

MetricFamily tightness(const GateStats& stats) {
  MetricFamily result = family(MetricType::Histogram, "assay_audit_tightness", "Bound / true total variation of audited cells");
  result.metric = {tightness_of(stats.audit_deterministic, kDeterministic), tightness_of(stats.audit_conditional, kConditional)};
  return result;
}

}  // namespace

std::vector<MetricFamily> gate_families(const GateStats& stats, bool has_meter) {
  if (!has_meter) return {};
  constexpr MetricType kGauge = MetricType::Gauge, kCounter = MetricType::Counter;
  return {
      actions(stats),
      single(kCounter, "assay_gate_paged_pages_total", "(layer, KV head, page) read back exact", number(stats.pages_in)),
      single(kCounter, "assay_gate_paged_bytes_total", "Bytes of those rows", number(stats.bytes_in)),
      single(kCounter, "assay_gate_unbacked_pages_total", "Pages that the gate wanted and could not have",
             number(stats.pages_not_backed)),
      single(kCounter, "assay_repair_cache_hits_total", "Repaired pages that a cell read", number(stats.repair_cache_hits)),
      single(kCounter, "assay_repair_cache_evictions_total", "Repaired pages that made room for others",
             number(stats.repair_cache_evictions)),
      single(kGauge, "assay_repair_cache_pages", "Repaired pages kept now", number(stats.repair_cache_pages)),
      single(kGauge, "assay_repair_cache_capacity_pages", "Repaired pages that fit", number(stats.repair_cache_capacity)),
      single(kGauge, "assay_backing_used_bytes", "Exact rows in host memory", number(stats.backing_used_bytes)),
      single(kGauge, "assay_backing_limit_bytes", "Room for exact rows in host memory", number(stats.backing_limit_bytes)),
      single(kCounter, "assay_backing_checksum_failures_total", "Exact rows that did not read back as written; none was used",
             number(stats.backing_checksum_failures)),
      single(kCounter, "assay_backing_skipped_pages_total", "Pages that found no room in host memory",
             number(stats.backing_skipped_pages)),
      by_guarantee(stats, "assay_audit_cells_total", "Cells checked against exact attention", &AuditCounts::cells),
      by_guarantee(stats, "assay_audit_violations_total", "Audited cells whose true error was above the reported bound",
                   &AuditCounts::violations),
      tightness(stats),
  };
}

}  // namespace assay
