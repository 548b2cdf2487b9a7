// The gate's decisions for one cell (docs/certificate.md, section 7): which pages to read back next, and what is left
// over a threshold. Pure functions, host and device.
//
// A cell over its thresholds is lowered in three rungs: refine (the finer page bound alone), page in (the pages that
// contribute most, rows exact, weights recomputed over both), whole head (every page exact). Weights are always those of
// the mixture that is served: zeroing radii under old weights is unsound (proofs 7.1). Above saturation paging in can
// raise the meter (proofs 7.2), so the number of pages is bounded.
#pragma once

#include "kernels/kv/bounds.h"
#include "kernels/kv/meter.h"
#include "kernels/kv/repair_view.h"

namespace assay::kv {

// Cells whose bounds were compared with exact attention, of one guarantee.
constexpr int kNumTightnessBuckets = 11;
constexpr double kTightnessEdges[kNumTightnessBuckets - 1] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
struct AuditTally {
  uint64_t cells = 0;
  uint64_t violations = 0;  // true total variation, or true output error, above its bound
  uint64_t tightness[kNumTightnessBuckets] = {};  // bound / true total variation, by kTightnessEdges; the last is the rest
  double tightness_sum = 0;                       // of finite ratios
};

// What the meter would have warned of: cells as attention left them, before any repair, by raw value (kRawEdges; the
// last bucket is the rest) and by whether the truth was bad: a true total variation above kHarmfulTv.
constexpr double kHarmfulTv = 0.1;
constexpr int kNumRawBuckets = 20;
constexpr float kRawEdges[kNumRawBuckets - 1] = {0.01f, 0.02f, 0.05f, 0.1f, 0.15f, 0.2f, 0.3f,  0.5f,  0.7f, 1.0f,
                                                 1.5f,  2.0f,  5.0f,  10.f, 1e2f,  1e3f, 1e4f,  1e6f,  1e9f};
struct WarningTally {
  uint64_t harmless[kNumRawBuckets] = {};
  uint64_t harmful[kNumRawBuckets] = {};
};

// Rows of one KV head that the gate repaired, and the true output errors of their cells over tau, relative to the largest
// value row, before and after.
constexpr int kNumPageBuckets = 8;  // 0, 1, 2, 3-4, 5-8, 9-16, 17-32 pages, more
struct RepairTally {
  uint64_t rows_by_pages[kNumPageBuckets] = {};
  uint64_t cells = 0;
  double error_before = 0, error_after = 0;  // sums
};

struct AuditTallies {
  AuditTally deterministic, conditional;
  WarningTally warnings;
  RepairTally repairs;
};

// What the gate may use, for one step; device memory of its owner.
struct GateView {
  bool on = false;  // false: nothing below is read
  RepairView repair;
  const uint8_t* exact_layers = nullptr;  // [num_layers] 1 = no compressed row is read there; null = none
  AuditTallies* audit = nullptr;          // this step's decode cells are audited into it; null = they are not

  ASSAY_HOST_DEVICE bool is_exact(int32_t layer, GatePolicy policy) const {
    return policy == GatePolicy::kExact || (exact_layers != nullptr && exact_layers[layer] != 0);
  }
};

// A page of a cell under the weights that are served now, relative to any common scale.
struct GatePage {
  double mass = 0;         // sum of weights
  float radius = 0;        // largest of its tokens
  double value_error = 0;  // sum of weight x rho
  bool exact = false;      // its rows are exact already
  bool refused = false;    // it has no intact exact rows
};

// How much a page's compression holds the meter up: mass (e^u - 1) for keys, mass x rho for values.
ASSAY_HOST_DEVICE double key_contribution(const GatePage& page) {
  const double radius = static_cast<double>(page.radius);
  return page.mass * (std::exp(radius < 300 ? radius : 300.0) - 1.0);
}

// The page to read back next: the largest contribution to the bound that is over its threshold. -1: none is left.
ASSAY_HOST_DEVICE int32_t next_page(const GatePage* pages, int32_t count, bool for_values) {
  int32_t best = -1;
  double most = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (pages[i].exact || pages[i].refused) continue;
    const double contribution = for_values ? pages[i].value_error : key_contribution(pages[i]);
    if (best >= 0 && !(contribution > most)) continue;
    best = i;
    most = contribution;
  }
  return best;
}

// Pages that a cell over `count` pages may read before its whole head is read instead: an eighth of them, 4 at least.
// Beyond it the traffic is that of the whole head in all but name, and the loop's work grows with every page.
ASSAY_HOST_DEVICE int32_t page_budget(int32_t count) {
  return count / 8 > 4 ? count / 8 : 4;
}

// Pages of the next round: 1, 1, 2, 4, ... doubles what has been read, within the budget.
ASSAY_HOST_DEVICE int32_t next_round(int32_t pages_read, int32_t budget) {
  const int32_t wanted = pages_read > 1 ? pages_read : 1;
  return wanted < budget - pages_read ? wanted : budget - pages_read;
}

}  // namespace assay::kv
