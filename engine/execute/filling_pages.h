// Which pages are still filling under a scheme that encodes whole pages, and the exact slots of their rows: one page a
// sequence, one slot per (layer, KV head) of it.
//
// Owns: the assignment; writes ExactPages::slots in device memory. Threads: one caller at a time. Errors: Internal for
// a plan that breaks its contract, or from the device.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/step.h"
#include "kernels/device.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

class FillingPages {
 public:
  FillingPages() = default;  // for layouts that need none
  explicit FillingPages(int32_t count);

  // Before a step: frees what ended and pages that became whole, gives slots to pages that this step leaves part full.
  absl::Status stage(const StepPlan& plan, const PagedKvView& view, Device& device);

 private:
  struct Filling {
    int32_t slot = -1;
    std::vector<int32_t> pages;  // with an entry in the table: the one that fills, and one that a step completes
  };

  absl::Status stage_slice(const SequenceSlice& slice, const PagedKvView& view, Device& device);
  absl::Status clear(Filling& filling, const PagedKvView& view, Device& device);
  absl::Status set(const PagedKvView& view, int32_t page, int32_t slot, Device& device) const;

  std::vector<int32_t> free_;
  std::unordered_map<int64_t, Filling> sequences_;
};

}  // namespace assay
