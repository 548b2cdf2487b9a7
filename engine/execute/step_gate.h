// The gate of an executor: the exact rows behind the pool, the repairs kept of them, which step is audited, and the
// totals of all that.
//
// Owns: backing store, repair cache, tallies. Threads: one caller at a time. Errors: InvalidArgument for settings that
// make no sense, ResourceExhausted where the memory is not there.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/backing_store.h"
#include "cache/repair_cache.h"
#include "engine/api/config.h"
#include "engine/api/gate.h"
#include "engine/execute/kv_pool.h"
#include "engine/execute/resolve_config.h"
#include "engine/plan/step.h"
#include "kernels/device.h"
#include "kernels/kv/gate.h"
#include "kernels/ops.h"

namespace assay {

class StepGate {
 public:
  StepGate() = default;  // repairs and audits nothing
  // Beside `pool`, whose view gets the backing store. `plan` as resolve_gate left it.
  static absl::StatusOr<StepGate> make(Device& device, const EngineConfig& config, const GatePlan& plan,
                                       const KvShape& shape, KvPool& pool);

  // What ended with its page goes, or is kept for a preempted sequence. Before anybody gives a page something new.
  void forget(const StepPlan& plan);
  // Pages that this step begins get room for their exact rows, and those of sequences that come back get theirs again.
  // Returns the pages to restore.
  std::vector<PageToRestore> stage(const StepPlan& plan);
  const kv::GateView& view() const { return view_; }
  // Fills SliceResult::backed, adds the step's tallies up, and fails slices that asked for exact rows and could not be
  // given them.
  void collect(const StepPlan& plan, StepResult& result);

  bool has_backing() const { return backing_.exists(); }
  BackingStore::Kept kept(int64_t sequence) { return backing_.exists() ? backing_.kept(sequence) : BackingStore::Kept{}; }
  GateStats stats() const;

 private:
  std::vector<PageToRestore> restore(const StepPlan& plan);
  bool is_backed(const SequenceSlice& slice) const;

  int32_t page_tokens_ = 0;
  double audit_rate_ = 0;
  double audit_due_ = 0;  // share of a step that is owed to the audit
  std::vector<uint8_t> exact_layers_;
  BackingStore backing_;
  RepairCache repair_;
  kv::AuditTallies audit_;
  kv::GateTally totals_;
  kv::GateView view_;
};

}  // namespace assay
