// Runs step plans on a device. The engine loop knows only this.
//
// Owns: device, weights, the KV cache's memory. Threads: created and called by one thread at a time (the engine
// thread). Errors: a failed step is fatal for what is in flight (the cache may be half written) and turns the engine
// unhealthy.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/api/gate.h"
#include "engine/api/model_info.h"
#include "engine/plan/step.h"
#include "kernels/kv/fold_cell.h"

namespace assay {

// `rows` [num_metered] and `verdicts` [num_metered][num_heads] of one layer, valid during the call.
using CellObserver = std::function<void(int32_t layer, std::span<const kv::MeteredRow> rows,
                                        std::span<const kv::CellVerdict> verdicts)>;

class Executor {
 public:
  virtual ~Executor() = default;
  virtual absl::StatusOr<StepResult> execute(const StepPlan& plan) = 0;
  virtual const ModelInfo& model() const = 0;
  virtual const PoolInfo& pool() const = 0;

  // Copies the tallies out, [layer][query head], and restarts those that count since the last copy. Empty for pools without a
  // meter. Call between steps, at leisure (seconds).
  virtual std::vector<kv::HeadMeter> read_head_meters() { return {}; }

  // Positions of a preempted sequence whose rows are kept and intact, whole pages; first = end where there are none.
  // Valid until the next plan is executed.
  struct KeptRows {
    int32_t first = 0, end = 0;
  };
  virtual KeptRows kept_rows(int64_t sequence_id) {
    static_cast<void>(sequence_id);
    return {};
  }

  // Totals of the gate and what stands behind it. Call between steps.
  virtual GateStats read_gate() const { return {}; }

  // From now on `observer` sees every metered cell of a step, layer by layer, on the caller's thread. Slow: for measuring, not
  // for serving. Empty = none. Pools without a meter never call it.
  virtual void observe_cells(CellObserver) {}
};

// Loads the model and allocates the pool. `config` gets every default resolved (max_model_len, threads, memory, ...).
absl::StatusOr<std::unique_ptr<Executor>> make_executor(EngineConfig& config);

}  // namespace assay
