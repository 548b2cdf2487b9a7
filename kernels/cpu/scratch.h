// Working memory of each thread of a pool: grows to the largest size asked for and is kept.
#pragma once

#include <cstddef>
#include <vector>

#include "hwy/aligned_allocator.h"

namespace assay {

class Scratch {
 public:
  explicit Scratch(int num_threads) : slots_(static_cast<size_t>(num_threads)) {}

  // At least `count` floats, aligned for vectors, undefined content; valid until the thread's next call.
  float* floats(int thread, size_t count) {
    Slot& slot = slots_[static_cast<size_t>(thread)];
    if (slot.count < count) {
      slot.data = hwy::AllocateAligned<float>(count);
      if (!slot.data) std::abort();  // a few hundred KiB: the machine is beyond help
      slot.count = count;
    }
    return slot.data.get();
  }

 private:
  struct alignas(64) Slot {
    hwy::AlignedFreeUniquePtr<float[]> data;
    size_t count = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace assay
