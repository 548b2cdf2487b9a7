#include "engine/execute/step_gate.h"

#include <algorithm>
#include <string>
#include <utility>

namespace assay {
namespace {

AuditCounts audit_counts(const kv::AuditTally& tally) {
  static_assert(std::tuple_size_v<decltype(AuditCounts::tightness)> == kv::kNumTightnessBuckets);
  AuditCounts counts;
  counts.cells = static_cast<int64_t>(tally.cells);
  counts.violations = static_cast<int64_t>(tally.violations);
  std::copy(std::begin(tally.tightness), std::end(tally.tightness), counts.tightness.begin());
  counts.tightness_sum = tally.tightness_sum;
  return counts;
}

WarningCounts warning_counts(const kv::WarningTally& tally) {
  static_assert(WarningCounts::kEdges.size() + 1 == kv::kNumRawBuckets);
  WarningCounts counts;
  std::copy(std::begin(tally.harmless), std::end(tally.harmless), counts.harmless.begin());
  std::copy(std::begin(tally.harmful), std::end(tally.harmful), counts.harmful.begin());
  return counts;
}

RepairCounts repair_counts(const kv::RepairTally& tally) {
  RepairCounts counts;
  static_assert(std::tuple_size_v<decltype(counts.rows_by_pages)> == kv::kNumPageBuckets);
  std::copy(std::begin(tally.rows_by_pages), std::end(tally.rows_by_pages), counts.rows_by_pages.begin());
  counts.cells = static_cast<int64_t>(tally.cells);
  counts.error_before = tally.error_before;
  counts.error_after = tally.error_after;
  return counts;
}

absl::StatusOr<std::vector<uint8_t>> layer_flags(const std::vector<int32_t>& layers, int32_t num_layers) {
  std::vector<uint8_t> flags(layers.empty() ? 0 : static_cast<size_t>(num_layers), 0);
  for (const int32_t layer : layers) {
    if (layer < 0 || layer >= num_layers) {
      return absl::InvalidArgumentError("kv_exact_layers names layer " + std::to_string(layer) + "; the model has layers 0 to " +
                                        std::to_string(num_layers - 1));
    }
    flags[static_cast<size_t>(layer)] = 1;
  }
  return flags;
}

}  // namespace

absl::StatusOr<StepGate> StepGate::make(Device& device, const EngineConfig& config, const GatePlan& plan,
                                        const KvShape& shape, KvPool& pool) {
  StepGate gate;
  absl::StatusOr<std::vector<uint8_t>> layers = layer_flags(config.kv_exact_layers, shape.num_layers);
  if (!layers.ok()) return layers.status();
  if (plan.backing_bytes == 0) return gate;
  gate.exact_layers_ = *std::move(layers);
  gate.page_tokens_ = shape.page_tokens;
  gate.audit_rate_ = config.kv_audit_rate;
  absl::StatusOr<BackingStore> backing =
      BackingStore::make(device, shape, pool.view().num_pages, plan.backing_bytes);
  if (!backing.ok()) return backing.status();
  gate.backing_ = *std::move(backing);
  pool.view().backing = gate.backing_.view();
  absl::StatusOr<RepairCache> repair =
      RepairCache::make(device, pool.view(), pool.first_repair_slot(), plan.repair_slots);
  if (!repair.ok()) return repair.status();
  gate.repair_ = *std::move(repair);
  return gate;
}

void StepGate::forget(const StepPlan& plan) {
  if (!has_backing()) return;
  for (const int64_t sequence : plan.ended_sequences) backing_.drop(sequence);
  for (const ParkedSequence& parked : plan.parked) {
    backing_.park(parked.sequence_id, parked.pages, parked.num_tokens);
  }
  for (const int32_t page : plan.freed_pages) {
    backing_.release(page);
    repair_.forget(page);
  }
}

std::vector<PageToRestore> StepGate::restore(const StepPlan& plan) {
  std::vector<PageToRestore> pages;
  for (const RestoredPages& restored : plan.restored) {
    backing_.restore(restored.sequence_id, restored.first_page, restored.pages);
    for (size_t i = 0; i < restored.pages.size(); ++i) {
      pages.push_back({restored.pages[i], (restored.first_page + static_cast<int32_t>(i)) * page_tokens_});
    }
  }
  for (const SequenceSlice& slice : plan.slices) backing_.drop(slice.sequence_id);  // it came back another way
  return pages;
}

std::vector<PageToRestore> StepGate::stage(const StepPlan& plan) {
  if (!has_backing()) return {};
  std::vector<PageToRestore> pages = restore(plan);
  bool decodes = false;
  for (const SequenceSlice& slice : plan.slices) {
    decodes = decodes || (has_decode_row(slice) && slice.first_position > 0);
    const int32_t end = slice.first_position + slice.num_tokens;
    const int32_t first = (slice.first_position + page_tokens_ - 1) / page_tokens_;
    for (int32_t page = first; page * page_tokens_ < end; ++page) backing_.begin(slice.pages[page]);
  }
  view_.on = true;
  view_.repair = repair_.begin_step();
  view_.exact_layers = exact_layers_.empty() ? nullptr : exact_layers_.data();
  audit_due_ += decodes ? audit_rate_ : 0.0;
  view_.audit = audit_due_ >= 1.0 ? &audit_ : nullptr;
  if (view_.audit != nullptr) audit_due_ -= 1.0;
  return pages;
}

bool StepGate::is_backed(const SequenceSlice& slice) const {
  const int32_t end = slice.first_position + slice.num_tokens;
  for (int32_t page = 0; page * page_tokens_ < end; ++page) {
    if (!backing_.covers(slice.pages[page])) return false;
  }
  return true;
}

void StepGate::collect(const StepPlan& plan, StepResult& result) {
  if (!has_backing()) return;
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    SliceResult& slice = result.slices[i];
    slice.backed = is_backed(plan.slices[i]);
    kv::add(totals_, slice.meter.gate);
    const bool wants_exact = plan.slices[i].meter.policy == kv::GatePolicy::kExact;
    if (!wants_exact || slice.meter.gate.pages_not_backed == 0 || !slice.status.ok()) continue;
    slice.status = absl::DataLossError(
        slice.meter.gate.checksum_failures > 0
            ? "certificate.policy \"exact\" could not be kept: exact rows did not read back as they were written"
            : "certificate.policy \"exact\" could not be kept: the backing store had no room for all pages of this request");
  }
}

GateStats StepGate::stats() const {
  GateStats stats;
  stats.has_backing = has_backing();
  const auto number = [](uint64_t count) { return static_cast<int64_t>(count); };
  stats.refined_cells = number(totals_.refined);
  stats.paged_cells = number(totals_.paged);
  stats.whole_head_cells = number(totals_.whole_head);
  stats.whole_layer_cells = number(totals_.whole_layer);
  stats.pages_in = number(totals_.pages_in);
  stats.bytes_in = number(totals_.bytes_in);
  stats.pages_not_backed = number(totals_.pages_not_backed);
  stats.repair_cache_hits = number(totals_.repair_hits);
  stats.repair_cache_evictions = repair_.evictions();
  stats.repair_cache_pages = repair_.num_pages();
  stats.repair_cache_capacity = repair_.num_slots();
  stats.backing_used_bytes = backing_.used_bytes();
  stats.backing_limit_bytes = backing_.limit_bytes();
  stats.backing_checksum_failures = number(totals_.checksum_failures) + backing_.broken_rows();
  stats.backing_skipped_pages = backing_.skipped_pages();
  stats.audit_deterministic = audit_counts(audit_.deterministic);
  stats.audit_conditional = audit_counts(audit_.conditional);
  stats.audit_warnings = warning_counts(audit_.warnings);
  stats.audit_repairs = repair_counts(audit_.repairs);
  return stats;
}

}  // namespace assay
