// Which pages the gate has repaired and keeps: bounded, per (layer, KV head, page), for as long as a page's content
// lives. Sequences that share a page share its repair.
//
// The rows lie in slots of the pool's ExactPages, which attention reads instead of the page's record; a slot is given
// and taken by kernels through the view. Here is the bookkeeping beside it, and what ends with a page.
//
// Owns: owners and times of use. Threads: one at a time, between steps. Errors: ResourceExhausted where the memory is
// not there.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cache/page_allocator.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/kv/paged_kv_view.h"
#include "kernels/kv/repair_view.h"

namespace assay {

class RepairCache {
 public:
  RepairCache() = default;  // keeps nothing
  // For slots [first_slot, first_slot + num_slots) of the exact pages of `pool`.
  static absl::StatusOr<RepairCache> make(Device& device, const PagedKvView& pool, int32_t first_slot,
                                          int32_t num_slots);

  // The content of `page` is gone, and with it every repair of it.
  void forget(PageId page);
  // A new step: what is read or claimed from now on counts as used in it.
  const kv::RepairView& begin_step() {
    ++view_.step;
    return view_;
  }

  int32_t num_slots() const { return view_.num_slots; }
  int32_t num_pages() const;    // kept now
  int64_t evictions() const;    // since start

 private:
  kv::RepairView view_;
  Buffer memory_;
  int32_t num_layers_ = 0, num_kv_heads_ = 0, num_pages_ = 0;
};

}  // namespace assay
