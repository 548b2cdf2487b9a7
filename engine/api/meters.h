// What the meter of a pool has seen since start, per (layer, query head). One snapshot is consistent in itself; totals
// never decrease. How to read it: docs/metrics.md.
//
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace assay {

enum class MeterPhase : uint8_t { kDecode, kPrefill };
constexpr int kNumMeterPhases = 2;

// Cells of one (layer, query head) in one phase.
struct HeadCells {
  int64_t metered = 0, over_tau = 0, saturated = 0, overflow = 0;
  // Sums of the finite bounds; overflow cells are in neither. Mean = sum / (metered - overflow).
  double tv_sum = 0, value_sum = 0;
};

struct HeadSnapshot {
  std::array<HeadCells, kNumMeterPhases> cells;
  double worst = 0;         // total variation bound since start
  double recent_worst = 0;  // of the last minute (up to five seconds more)
};

// Of all heads.
struct MeterHistogram {
  std::vector<int64_t>
      counts;      // counts[i]: cells with a bound <= MeterSnapshot::bucket_edges[i]; the last entry: the rest
  double sum = 0;  // of finite bounds
};

struct MeterSnapshot {
  int32_t num_layers = 0, num_heads = 0;  // num_heads: query heads
  std::vector<HeadSnapshot> heads;        // [num_layers][num_heads]; empty: nothing is metered
  std::vector<double> bucket_edges;       // ascending, those of both histograms
  std::array<MeterHistogram, kNumMeterPhases> tv, value;
};

}  // namespace assay
