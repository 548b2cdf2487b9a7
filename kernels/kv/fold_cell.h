// From raw sums to labels and tallies: what a metered cell is called, and where it is counted. The gate sits between the
// sums (attention) and this. Pure functions on caller-owned values, host and device; the caller serialises
// the cells of one tally.
#pragma once

#include "kernels/kv/meter.h"

namespace assay::kv {

enum class CellLabel : uint8_t { kExact, kCertified, kConditional, kRiskRanked };

struct CellVerdict {
  CellLabel label = CellLabel::kExact;
  Meter<float> meter{0.0f, 0.0f};  // of the radius in use: the smaller one where there is dither
  float value = 0;                 // value meter
};

// One metered query row of a step.
struct MeteredRow {
  int32_t row = 0;  // of the batch
  int32_t sequence = 0;
  int32_t position = 0;
  Phase phase = Phase::kDecode;
};

// The metered rows of a step and where their results go; device memory of its owner.
struct MeterView {
  int32_t num_metered = 0;  // 0: nothing below is read
  int32_t num_heads = 0;    // of this rank
  int32_t first_head = 0;   // global number of this rank's head 0
  BoundKind bound = BoundKind::kBest;
  RadiusKind radius = RadiusKind::kWitness;
  const int32_t* cell_of_row = nullptr;         // [num_tokens] index of the metered row, -1 = not metered
  const MeteredRow* rows = nullptr;             // [num_metered]
  const MeterThresholds* thresholds = nullptr;  // [num_sequences]
  MeterCell* cells = nullptr;                   // [num_metered][num_heads], of one layer at a time
  CellVerdict* verdicts = nullptr;              // likewise
  SequenceMeter* sequences = nullptr;           // [num_sequences], zeroed at the start of a step
  HeadMeter* heads = nullptr;                   // [num_layers][num_heads], since start
};

namespace detail {
ASSAY_HOST_DEVICE bool passes(const Meter<float>& m, float value, const MeterThresholds& thresholds) {
  return !fires(m, thresholds.tau) && m.raw < 1.0f && value <= thresholds.tau_v;
}

// The least of two valid bounds of the same weights.
ASSAY_HOST_DEVICE Meter<float> lowered(const Meter<float>& m, float page_bound, float weight_rounding) {
  const float bound = page_bound + weight_rounding / 2;
  return bound < m.tv ? Meter<float>{bound, bound} : m;
}
}  // namespace detail

// Label of a cell. A cell that read no compressed row is exact. Only radii that always hold can certify.
ASSAY_HOST_DEVICE CellVerdict judge_cell(const MeterCell& cell, const MeterThresholds& thresholds, BoundKind bound,
                                         RadiusKind radius) {
  CellVerdict verdict;
  if (cell.compressed_tokens == 0) return verdict;
  Meter<float> certain = meter(meter_inputs(cell.certain, cell.serial_terms), bound, cell.weight_rounding);
  if (bound == BoundKind::kBest) certain = detail::lowered(certain, cell.page_bound, cell.weight_rounding);
  verdict.value = value_meter(value_error(cell.certain, cell.serial_terms), cell.value_norm_low);
  verdict.meter = certain;
  verdict.label = CellLabel::kRiskRanked;
  if (radius != RadiusKind::kWitness) {
    verdict.meter = meter(meter_inputs(cell.conditional, cell.serial_terms), bound, cell.weight_rounding);
    if (bound == BoundKind::kBest) {
      verdict.meter = detail::lowered(verdict.meter, cell.page_bound_conditional, cell.weight_rounding);
    }
    if (detail::passes(verdict.meter, verdict.value, thresholds)) verdict.label = CellLabel::kConditional;
  }
  if (detail::passes(certain, verdict.value, thresholds)) verdict.label = CellLabel::kCertified;
  return verdict;
}

ASSAY_HOST_DEVICE int meter_bucket(float bound) {
  int bucket = 0;
  while (bucket < kNumMeterBuckets && !(bound <= kMeterBucketEdges[bucket])) ++bucket;
  return bucket;
}

namespace detail {

ASSAY_HOST_DEVICE void count(CellCounts& counts, const CellVerdict& verdict) {
  counts.metered += 1;
  counts.exact += verdict.label == CellLabel::kExact;
  counts.certified += verdict.label == CellLabel::kCertified;
  counts.conditional += verdict.label == CellLabel::kConditional;
  counts.risk_ranked += verdict.label == CellLabel::kRiskRanked;
  counts.saturated += !(verdict.meter.raw < 1.0f);
  counts.overflow += !is_finite(verdict.meter.raw);
}

// The first of the largest raw values; a NaN counts as infinite.
ASSAY_HOST_DEVICE void keep_worst(WorstCell& worst, float bound, float raw, int layer, int head, int position) {
  if (!(raw == raw)) raw = infinity();
  if (worst.layer >= 0 && !(raw > worst.raw)) return;
  worst = WorstCell{bound, raw, layer, head, position};
}

ASSAY_HOST_DEVICE void count(HeadMeter& head, int phase, const CellVerdict& verdict) {
  head.metered[phase] += 1;
  head.over_tau[phase] += verdict.label == CellLabel::kRiskRanked;
  head.saturated[phase] += !(verdict.meter.raw < 1.0f);
  head.worst = max_of(head.worst, verdict.meter.tv);
  head.recent_worst = max_of(head.recent_worst, verdict.meter.tv);
  if (is_finite(verdict.meter.raw)) {
    head.tv_sum[phase] += verdict.meter.tv;
    head.tv_buckets[phase][meter_bucket(verdict.meter.tv)] += 1;
  } else {
    head.overflow[phase] += 1;
  }
  if (is_finite(verdict.value)) {
    head.value_sum[phase] += verdict.value;
    head.value_buckets[phase][meter_bucket(verdict.value)] += 1;
  }
}

}  // namespace detail

// Counts a cell of (layer, global query head, position) in both tallies.
ASSAY_HOST_DEVICE void tally_cell(const CellVerdict& verdict, Phase phase, int layer, int head, int position,
                                  SequenceMeter& sequence, HeadMeter& head_meter) {
  const int p = static_cast<int>(phase);
  detail::count(sequence.cells[p], verdict);
  detail::count(head_meter, p, verdict);
  if (verdict.label == CellLabel::kExact) return;
  detail::keep_worst(sequence.worst[p], verdict.meter.tv, verdict.meter.raw, layer, head, position);
  detail::keep_worst(sequence.worst_value[p], verdict.value, verdict.value, layer, head, position);
}

// judge_cell, then tally_cell.
ASSAY_HOST_DEVICE void fold_cell(const MeterCell& cell, const MeterThresholds& thresholds, BoundKind bound,
                                 RadiusKind radius, const MeteredRow& row, int layer, int head, SequenceMeter& sequence,
                                 HeadMeter& head_meter) {
  tally_cell(judge_cell(cell, thresholds, bound, radius), row.phase, layer, head, row.position, sequence, head_meter);
}

}  // namespace assay::kv
