#include "engine/core/meter_history.h"

#include <algorithm>

#include "cache/check.h"

namespace assay {
namespace {

static_assert(kNumMeterPhases == kv::kNumPhases &&
              static_cast<int>(MeterPhase::kDecode) == static_cast<int>(kv::Phase::kDecode));

void add_buckets(const uint32_t (&buckets)[kv::kNumMeterBuckets + 1], double sum, MeterHistogram& histogram) {
  histogram.counts.resize(kv::kNumMeterBuckets + 1);
  for (int i = 0; i <= kv::kNumMeterBuckets; ++i) histogram.counts[i] += buckets[i];
  histogram.sum += sum;
}

}  // namespace

bool MeterHistory::due(TimePoint now) const {
  return !last_take_ || now - *last_take_ >= std::chrono::seconds(1);
}

void MeterHistory::take(const std::vector<kv::HeadMeter>& heads, TimePoint now) {
  last_take_ = now;
  if (heads.empty()) return;
  ASSAY_CHECK(heads.size() == static_cast<size_t>(num_layers_) * num_heads_, "one tally for each layer and query head");
  const std::lock_guard lock(mutex_);
  if (totals_.heads.empty()) {
    totals_.num_layers = num_layers_;
    totals_.num_heads = num_heads_;
    totals_.heads.resize(heads.size());
    totals_.bucket_edges.assign(std::begin(kv::kMeterBucketEdges), std::end(kv::kMeterBucketEdges));
  }
  Slot& slot = slots_[static_cast<size_t>(slot_number(now)) % kNumSlots];
  if (slot.number != slot_number(now)) slot = {slot_number(now), std::vector<float>(heads.size(), 0.0f)};
  for (size_t i = 0; i < heads.size(); ++i) take_head(i, heads[i], slot);
}

// Counts and worst are the executor's since start; the rest starts anew with each read.
void MeterHistory::take_head(size_t index, const kv::HeadMeter& head, Slot& slot) {
  HeadSnapshot& total = totals_.heads[index];
  total.worst = head.worst;
  slot.worst[index] = std::max(slot.worst[index], head.recent_worst);
  for (int phase = 0; phase < kNumMeterPhases; ++phase) {
    HeadCells& cells = total.cells[phase];
    cells.metered = static_cast<int64_t>(head.metered[phase]);
    cells.over_tau = static_cast<int64_t>(head.over_tau[phase]);
    cells.saturated = static_cast<int64_t>(head.saturated[phase]);
    cells.overflow = static_cast<int64_t>(head.overflow[phase]);
    cells.tv_sum += head.tv_sum[phase];
    cells.value_sum += head.value_sum[phase];
    add_buckets(head.tv_buckets[phase], head.tv_sum[phase], totals_.tv[phase]);
    add_buckets(head.value_buckets[phase], head.value_sum[phase], totals_.value[phase]);
  }
}

MeterSnapshot MeterHistory::snapshot(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  MeterSnapshot snapshot = totals_;
  const int64_t oldest = slot_number(now) - static_cast<int64_t>(kNumSlots) + 1;
  for (const Slot& slot : slots_) {
    if (slot.number < oldest || slot.number < 0) continue;
    for (size_t i = 0; i < slot.worst.size(); ++i) {
      snapshot.heads[i].recent_worst = std::max<double>(snapshot.heads[i].recent_worst, slot.worst[i]);
    }
  }
  return snapshot;
}

}  // namespace assay
