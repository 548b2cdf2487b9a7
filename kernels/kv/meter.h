// What the meter of a pool knows and where it is kept: one cell per (layer, query head, metered position), folded into
// two tallies in device memory, per sequence of the step and per (layer, head) since start. Plain numbers; the host
// reads them at its own pace. What a cell's label means: docs/certificate.md.
#pragma once

#include <cstdint>

#include "kernels/kv/bounds.h"

namespace assay::kv {

enum class Phase : uint8_t { kDecode, kPrefill };
constexpr int kNumPhases = 2;

enum class RadiusKind : uint8_t { kWitness, kDither, kBoth };

// What happens to a cell that is over its thresholds. kObserve: it is served and counted. kRepair: it is lowered with
// exact rows before anything is emitted. kExact: nothing compressed is read at all.
enum class GatePolicy : uint8_t { kObserve, kRepair, kExact };

// Thresholds of one sequence in one step. tau < 1 certifies, tau >= 1 only ranks.
struct MeterThresholds {
  float tau = 0.2f;     // of the key meter (total variation)
  float tau_v = 0.05f;  // of the value meter (relative to max |v|)
  float kappa = 0;  // of the dither radius, for this request's delta and length (dither_kappa); unused by the witness
  int32_t metered_stride = 1;  // prefill rows: meter each position divisible by it and the last of the chunk; 0 = none
  GatePolicy policy = GatePolicy::kObserve;  // of decode rows; kExact also of the others
};

// One metered (row, head), before any bound.
struct MeterCell {
  MeterSums<float> certain;          // radii that always hold (witness; of exact rows the float product alone)
  MeterSums<float> conditional;      // the smaller of witness and dither per token; equal to `certain` without dither
  float value_norm_low = 0;          // max |v_t| of exact values, rounded down
  int32_t compressed_tokens = 0;     // 0: only exact rows were read
  int32_t serial_terms = 0;          // longest chain of additions into one accumulator
  float weight_rounding = 0x1p-16f;  // largest relative error of the weights that multiply the values (float exp)
  // Another valid bound of the same weights, TV* over pages (bounds.h), where the gate has worked it out.
  float page_bound = infinity();              // from the radii of `certain`
  float page_bound_conditional = infinity();  // from those of `conditional`
};

// Cells by label. Each metered cell has exactly one label: metered = certified + conditional + risk_ranked + exact, and
// saturated and overflow count cells that are among risk_ranked.
struct CellCounts {
  uint64_t metered = 0;
  uint64_t certified = 0;    // a deterministic bound is <= tau (and the value meter <= tau_v)
  uint64_t conditional = 0;  // only the dither radius brought it under tau
  uint64_t risk_ranked = 0;  // over tau, not repaired
  uint64_t saturated = 0;    // raw >= 1
  uint64_t overflow = 0;     // raw left fp32; kept out of means
  uint64_t exact = 0;        // no compressed row was read
};

struct WorstCell {
  float bound = 0;  // min(1, .)
  float raw = 0;    // +infinity where it left fp32
  int32_t layer = -1;
  int32_t head = -1;      // global query head
  int32_t position = -1;  // of the query in its sequence
};

// What the gate did. Cells are counted by the last rung that was taken for them.
struct GateTally {
  uint64_t refined = 0;            // cells that a finer bound brought under tau, without traffic
  uint64_t paged = 0;              // cells for which pages were read back
  uint64_t whole_head = 0;         // cells whose head was read exactly as a whole
  uint64_t whole_layer = 0;        // cells of rows and layers that are read exactly by order (policy exact, exact layers)
  uint64_t pages_in = 0;           // (layer, KV head, page) read from the backing store
  uint64_t bytes_in = 0;           // of their rows
  uint64_t repair_hits = 0;        // (layer, KV head, page) that a step found in the repair cache
  uint64_t checksum_failures = 0;  // rows of the backing store that failed their checksum; never used
  uint64_t pages_not_backed = 0;   // pages that the gate wanted and could not have
};

ASSAY_HOST_DEVICE void add(GateTally& sum, const GateTally& more) {
  sum.refined += more.refined;
  sum.paged += more.paged;
  sum.whole_head += more.whole_head;
  sum.whole_layer += more.whole_layer;
  sum.pages_in += more.pages_in;
  sum.bytes_in += more.bytes_in;
  sum.repair_hits += more.repair_hits;
  sum.checksum_failures += more.checksum_failures;
  sum.pages_not_backed += more.pages_not_backed;
}

// Of one sequence, over one step (the engine adds the steps up).
struct SequenceMeter {
  CellCounts cells[kNumPhases];
  WorstCell worst[kNumPhases];        // key meter
  WorstCell worst_value[kNumPhases];  // value meter; `bound` is not cut at 1 there
  GateTally gate;
};

// Upper edges of the histograms of the bound; the last bucket is the rest.
constexpr int kNumMeterBuckets = 12;
constexpr float kMeterBucketEdges[kNumMeterBuckets] = {0.001f, 0.002f, 0.005f, 0.01f, 0.02f, 0.05f,
                                                       0.1f,   0.2f,   0.3f,   0.5f,  0.7f,  1.0f};

// Of one (layer, query head), since start.
struct HeadMeter {
  uint64_t metered[kNumPhases] = {};
  uint64_t over_tau[kNumPhases] = {};
  uint64_t saturated[kNumPhases] = {};
  uint64_t overflow[kNumPhases] = {};
  float worst = 0;                // since start
  float recent_worst = 0;         // since the host last moved it out
  float tv_sum[kNumPhases] = {};  // of finite bounds, since the host last moved it out
  float value_sum[kNumPhases] = {};
  uint32_t tv_buckets[kNumPhases][kNumMeterBuckets + 1] = {};  // since the host last moved them out
  uint32_t value_buckets[kNumPhases][kNumMeterBuckets + 1] = {};
};

}  // namespace assay::kv
