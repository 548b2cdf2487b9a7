// A step plan flattened into the arrays that kernels read, staged in one copy.
//
// Owns: the staging memory (host) and its device twin; both grow to the largest step seen.
// Threads: one caller at a time. Errors: Internal for a plan that breaks its contract (nothing has run then).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/step.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace assay {

struct BatchLimits {
  int32_t max_tokens = 0;
  int32_t vocab_size = 0;
  int32_t page_tokens = 0;
  int32_t num_pages = 0;
};

class StepBatch {
 public:
  // `head_rows`: rows whose logits are needed, staged with the rest.
  absl::Status stage(const StepPlan& plan, const BatchLimits& limits, const std::vector<int32_t>& head_rows,
                     Device& device);

  const BatchView& view() const { return view_; }
  const int32_t* head_rows() const { return head_rows_; }  // device memory

 private:
  void fill(const StepPlan& plan, const std::vector<int32_t>& head_rows);
  void point_view_at(const int32_t* base, const StepPlan& plan);

  std::vector<int32_t> host_;
  Buffer device_memory_;
  BatchView view_;
  const int32_t* head_rows_ = nullptr;
  int32_t stride_ = 0;  // of the page table
};

}  // namespace assay
