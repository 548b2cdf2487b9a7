// What the gate, the backing store behind it and the audit have done since start. Totals never decrease, but for the
// gauges named so. How to read it: docs/metrics.md.
//
// Threads: values.
#pragma once

#include <array>
#include <cstdint>

namespace assay {

// Cells checked against exact attention, of one guarantee.
struct AuditCounts {
  int64_t cells = 0;
  int64_t violations = 0;  // the true error was above the reported bound
  // Bound / true total variation: counts[i] cells with a ratio <= kEdges[i], the last entry the rest (no true error too).
  static constexpr std::array<double, 10> kEdges{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
  std::array<int64_t, kEdges.size() + 1> tightness{};
  double tightness_sum = 0;  // of finite ratios
};

// Audited cells before any repair: did the raw value warn of those whose true total variation was above 0.1?
struct WarningCounts {
  static constexpr std::array<double, 19> kEdges{0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1,
                                                 1.5,  2,    5,    10,  1e2,  1e3, 1e4, 1e6, 1e9};
  std::array<int64_t, kEdges.size() + 1> harmless{}, harmful{};  // cells by raw value; the last entry is the rest
};

// Repairs in audited steps.
struct RepairCounts {
  std::array<int64_t, 8> rows_by_pages{};  // rows of one KV head that took 0, 1, 2, 3-4, 5-8, 9-16, 17-32 or more pages
  int64_t cells = 0;                       // that were over their thresholds
  double error_before = 0, error_after = 0;  // sums of their true output errors, relative to the largest value row
};

struct GateStats {
  bool has_backing = false;

  int64_t refined_cells = 0, paged_cells = 0, whole_head_cells = 0, whole_layer_cells = 0;  // by the last rung taken
  int64_t pages_in = 0, bytes_in = 0;    // (layer, KV head, page) read from the backing store
  int64_t pages_not_backed = 0;          // wanted, and not to be had
  int64_t repair_cache_hits = 0;         // pages that a cell read from the repair cache
  int64_t repair_cache_evictions = 0;
  int64_t repair_cache_pages = 0;        // gauge
  int64_t repair_cache_capacity = 0;     // pages, fixed

  int64_t backing_used_bytes = 0;        // gauge
  int64_t backing_limit_bytes = 0;       // fixed
  int64_t backing_checksum_failures = 0; // rows that did not read back as written; never used
  int64_t backing_skipped_pages = 0;     // pages that found no room

  AuditCounts audit_deterministic, audit_conditional;
  WarningCounts audit_warnings;
  RepairCounts audit_repairs;
};

}  // namespace assay
