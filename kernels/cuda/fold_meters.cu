// Labels the cells of a layer and counts them: a block per head for the tallies since start, a warp per sequence for
// those of the step. Integers and maxima, so the order does not matter; the sums of bounds go over lanes in a fixed
// tree.
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/tensor_core.cuh"

namespace assay {
namespace {

constexpr int kFoldThreads = 128;
constexpr int kFoldWarps = kFoldThreads / 32;

__device__ __forceinline__ kv::CellVerdict verdict_of(const kv::MeterView& meter, int row, int head) {
  return kv::judge_cell(meter.cells[static_cast<int64_t>(row) * meter.num_heads + head],
                        meter.thresholds[meter.rows[row].sequence], meter.bound, meter.radius);
}

// What a block of rows adds to one phase of a HeadMeter.
struct HeadSums {
  uint32_t metered = 0, over_tau = 0, saturated = 0, overflow = 0;
  float worst = 0, tv_sum = 0, value_sum = 0;
};

__device__ __forceinline__ uint32_t count_if(bool what) {
  return __popc(__ballot_sync(kAllLanes, what));
}

__device__ __forceinline__ void add_rows(HeadSums& sums, bool there, const kv::CellVerdict& verdict) {
  const bool finite = there && kv::is_finite(verdict.meter.raw);
  sums.metered += count_if(there);
  sums.over_tau += count_if(there && verdict.label == kv::CellLabel::kRiskRanked);
  sums.saturated += count_if(there && !(verdict.meter.raw < 1.0f));
  sums.overflow += count_if(there && !finite);
  sums.worst = fmaxf(sums.worst, warp_max(there ? verdict.meter.tv : 0.0f));
  sums.tv_sum += warp_sum(finite ? verdict.meter.tv : 0.0f);
  sums.value_sum += warp_sum(there && kv::is_finite(verdict.value) ? verdict.value : 0.0f);
}

template <int kEdge>
struct EdgeOf {
  static constexpr float kValue = kv::kMeterBucketEdges[kEdge];
};

// meter_bucket of fold_cell.h: the edges are compile-time numbers here.
template <int... kEdges>
__device__ __forceinline__ int bucket_of(float bound, std::integer_sequence<int, kEdges...>) {
  return ((bound <= EdgeOf<kEdges>::kValue ? 0 : 1) + ...);
}
__device__ __forceinline__ int bucket_of(float bound) {
  return bucket_of(bound, std::make_integer_sequence<int, kv::kNumMeterBuckets>());
}

__device__ __forceinline__ void add_to_buckets(kv::HeadMeter& head, int phase, const kv::CellVerdict& verdict) {
  if (kv::is_finite(verdict.meter.raw)) atomicAdd(&head.tv_buckets[phase][bucket_of(verdict.meter.tv)], 1u);
  if (kv::is_finite(verdict.value)) atomicAdd(&head.value_buckets[phase][bucket_of(verdict.value)], 1u);
}

__device__ void fold_head(const kv::MeterView& meter, int layer, int head) {
  __shared__ HeadSums partial[kFoldWarps][kv::kNumPhases];
  kv::HeadMeter& tally = meter.heads[static_cast<int64_t>(layer) * meter.num_heads + head];
  HeadSums sums[kv::kNumPhases];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int first = warp * 32; first < meter.num_metered; first += kFoldThreads) {
    const int row = first + lane;
    kv::CellVerdict verdict;
    int phase = -1;
    if (row < meter.num_metered) {
      verdict = verdict_of(meter, row, head);
      phase = static_cast<int>(meter.rows[row].phase);
      add_to_buckets(tally, phase, verdict);
    }
#pragma unroll
    for (int f = 0; f < kv::kNumPhases; ++f) add_rows(sums[f], phase == f, verdict);
  }
  if (lane == 0) {
#pragma unroll
    for (int f = 0; f < kv::kNumPhases; ++f) partial[warp][f] = sums[f];
  }
  __syncthreads();
  if (threadIdx.x >= kv::kNumPhases) return;
  const int phase = threadIdx.x;
  float worst = 0.0f;
  for (int w = 0; w < kFoldWarps; ++w) {
    const HeadSums& from = partial[w][phase];
    tally.metered[phase] += from.metered;
    tally.over_tau[phase] += from.over_tau;
    tally.saturated[phase] += from.saturated;
    tally.overflow[phase] += from.overflow;
    tally.tv_sum[phase] += from.tv_sum;
    tally.value_sum[phase] += from.value_sum;
    worst = fmaxf(worst, from.worst);
  }
  // Never negative, so the order of floats is that of their bits.
  atomicMax(reinterpret_cast<unsigned*>(&tally.worst), kv::float_bits(worst));
  atomicMax(reinterpret_cast<unsigned*>(&tally.recent_worst), kv::float_bits(worst));
}

// The first row of `sequence` among the metered ones, which are in order of their sequences.
__device__ __forceinline__ int first_metered(const kv::MeterView& meter, int sequence) {
  int low = 0, high = meter.num_metered;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (meter.rows[middle].sequence < sequence)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The lane with the largest raw value, the lowest of several; -1 where no lane has one. NaN counts as infinite.
__device__ __forceinline__ int worst_lane(bool there, float raw) {
  const float value = !there ? -1.0f : raw == raw ? raw : kv::infinity();
  const float largest = warp_max(value);
  const uint32_t holders = __ballot_sync(kAllLanes, there && value == largest);
  return holders == 0 ? -1 : __ffs(static_cast<int>(holders)) - 1;
}

struct Place {
  int layer, head, position;
};

__device__ __forceinline__ void keep_worst_of(kv::WorstCell& worst, bool there, float bound, float raw, Place place) {
  if (worst_lane(there, raw) == static_cast<int>(threadIdx.x % 32)) {
    kv::detail::keep_worst(worst, bound, raw, place.layer, place.head, place.position);
  }
  __syncwarp();
}

__device__ void fold_row(const kv::MeterView& meter, int layer, int row, kv::SequenceMeter& tally) {
  const kv::MeteredRow& metered = meter.rows[row];
  const int phase = static_cast<int>(metered.phase), lane = threadIdx.x % 32;
  kv::CellCounts counts;
  for (int first = 0; first < meter.num_heads; first += 32) {
    const int head = first + lane;
    const bool there = head < meter.num_heads;
    kv::CellVerdict verdict;
    if (there) {
      verdict = verdict_of(meter, row, head);
      meter.verdicts[static_cast<int64_t>(row) * meter.num_heads + head] = verdict;
    }
    const auto labelled = [&](kv::CellLabel label) { return count_if(there && verdict.label == label); };
    counts.metered += count_if(there);
    counts.exact += labelled(kv::CellLabel::kExact);
    counts.certified += labelled(kv::CellLabel::kCertified);
    counts.conditional += labelled(kv::CellLabel::kConditional);
    counts.risk_ranked += labelled(kv::CellLabel::kRiskRanked);
    counts.saturated += count_if(there && !(verdict.meter.raw < 1.0f));
    counts.overflow += count_if(there && !kv::is_finite(verdict.meter.raw));
    const bool ranked = there && verdict.label != kv::CellLabel::kExact;
    const Place place{layer, meter.first_head + head, metered.position};
    keep_worst_of(tally.worst[phase], ranked, verdict.meter.tv, verdict.meter.raw, place);
    keep_worst_of(tally.worst_value[phase], ranked, verdict.value, verdict.value, place);
  }
  if (lane != 0) return;
  kv::CellCounts& total = tally.cells[phase];
  total.metered += counts.metered;
  total.exact += counts.exact;
  total.certified += counts.certified;
  total.conditional += counts.conditional;
  total.risk_ranked += counts.risk_ranked;
  total.saturated += counts.saturated;
  total.overflow += counts.overflow;
}

// One warp: all rows of the sequence that owns `row`, if `row` is its first.
__device__ void fold_sequence(const kv::MeterView& meter, int layer, int row) {
  const int sequence = meter.rows[row].sequence;
  if (first_metered(meter, sequence) != row) return;
  for (; row < meter.num_metered && meter.rows[row].sequence == sequence; ++row) {
    fold_row(meter, layer, row, meter.sequences[sequence]);
    __syncwarp();
  }
}

// Blocks [0, num_heads): heads; behind them a warp for each metered row.
__global__ void __launch_bounds__(kFoldThreads)
    fold_kernel(const __grid_constant__ kv::MeterView meter, int32_t layer) {
  if (static_cast<int>(blockIdx.x) < meter.num_heads) return fold_head(meter, layer, blockIdx.x);
  const int row = (blockIdx.x - meter.num_heads) * kFoldWarps + threadIdx.x / 32;
  if (row < meter.num_metered) fold_sequence(meter, layer, row);
}

}  // namespace

void launch_fold_meters(CudaContext& context, int32_t layer, const kv::MeterView& meter) {
  if (meter.num_metered == 0) return;
  const int blocks = meter.num_heads + (meter.num_metered + kFoldWarps - 1) / kFoldWarps;
  fold_kernel<<<blocks, kFoldThreads, 0, context.stream>>>(meter, layer);
  context.check(cudaPeekAtLastError());
}

}  // namespace assay
