// The repair cache as kernels see it: slots of ExactPages that hold pages which the gate has read back, least recently
// useful out first. Plain functions on memory of the owner (cache/repair_cache.h); one caller at a time.
#pragma once

#include <cstdint>

#include "kernels/kv/host_device.h"

namespace assay::kv {

struct RepairView {
  int32_t* slots = nullptr;  // ExactPages::slots, [layer][KV head][page]; an index into it is a page's key
  int32_t first_slot = 0;    // slots [first_slot, first_slot + num_slots) are the repair cache's
  int32_t num_slots = 0;
  int64_t* owners = nullptr;      // [num_slots] key of the page in it, -1 = free
  uint64_t* last_used = nullptr;  // [num_slots] step in which it was claimed or read last
  uint64_t* evictions = nullptr;  // one counter, since start
  uint64_t step = 0;              // number of this step, from 1

  ASSAY_HOST_DEVICE bool holds(int32_t slot) const { return slot >= first_slot && slot < first_slot + num_slots; }
  ASSAY_HOST_DEVICE void touch(int32_t slot) const {
    if (holds(slot)) last_used[slot - first_slot] = step;
  }

  ASSAY_HOST_DEVICE void release(int64_t key) const {
    if (!holds(slots[key])) return;
    owners[slots[key] - first_slot] = -1;
    last_used[slots[key] - first_slot] = 0;
    slots[key] = -1;
  }

  // Takes slot first_slot + i from its owner, whose entry may have become another's meanwhile.
  ASSAY_HOST_DEVICE void evict(int32_t i) const {
    if (owners[i] < 0) return;
    if (slots[owners[i]] == first_slot + i) slots[owners[i]] = -1;
    owners[i] = -1;
    *evictions += 1;
  }

  // A slot for the page of `key`, which has none; the page's rows are the caller's to write. -1: every slot was used in
  // this step already, so nothing is worth less than the newcomer.
  ASSAY_HOST_DEVICE int32_t claim(int64_t key) const {
    int32_t best = -1;
    for (int32_t i = 0; i < num_slots; ++i) {
      if (last_used[i] < step && (best < 0 || last_used[i] < last_used[best])) best = i;
    }
    if (best < 0) return -1;
    evict(best);
    owners[best] = key;
    last_used[best] = step;
    slots[key] = first_slot + best;
    return slots[key];
  }
};

}  // namespace assay::kv
