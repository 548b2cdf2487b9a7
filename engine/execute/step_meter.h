// Which rows of a step are metered, and the memory of their cells and tallies.
//
// Owns: device memory for the step (grows to the largest) and the tallies per (layer, head) since start. Threads: one
// caller at a time. Errors: ResourceExhausted or Internal from the device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/execute/resolve_config.h"
#include "engine/plan/step.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/kv/fold_cell.h"

namespace assay {

// Rows of a plan to meter: decode rows always; of prefill rows that read stored rows, each position divisible by the
// slice's metered_stride and the last of the slice.
std::vector<kv::MeteredRow> metered_rows(const StepPlan& plan);

class StepMeter {
 public:
  StepMeter() = default;  // meters nothing
  static absl::StatusOr<StepMeter> make(Device& device, const MeterRules& rules, int32_t num_layers, int32_t num_heads);

  absl::Status stage(const StepPlan& plan, Device& device);
  const kv::MeterView& view() const { return view_; }
  // Fills SliceResult::meter of the staged step's results.
  absl::Status collect(Device& device, StepResult& result);
  // Copies the tallies out and restarts those that count since the last copy.
  absl::StatusOr<std::vector<kv::HeadMeter>> read_heads(Device& device);

 private:
  kv::MeterView view_;
  int32_t num_layers_ = 0;  // 0: meters nothing
  Buffer heads_, step_;
};

}  // namespace assay
