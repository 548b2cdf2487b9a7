// The memory of the KV cache and of what a compressed pool keeps beside it.
//
// Owns: records, the side table, rotation, balance, dither, scales, and the exact rows of pages that are still filling.
// The view stays valid as long as the pool. Threads: one caller at a time; kernels write through the view. Errors:
// ResourceExhausted where the memory is not there.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cache/pool/pool_layout.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"

namespace assay {

// What a compressed pool does to rows, and with what; empty = nothing.
struct PoolTransform {
  std::vector<float> signs;      // [head_dim] rotation
  std::vector<float> lambda;     // [layer][KV head][head_dim] balance
  std::vector<uint16_t> bypass;  // [layer][KV head][bypass_channels]
  std::vector<float> key_scale;  // [layer][KV head]
  std::vector<float> value_scale;
  DitherStream dither_stream = DitherStream::kNone;
  uint64_t seed = 0;
};

class KvPool {
 public:
  // `filling_pages`: pages that can be filling at a time, for layouts that encode whole pages. `repair_slots`: slots of
  // exact pages behind those, for pages that the gate has repaired.
  static absl::StatusOr<KvPool> make(Device& device, const PoolLayout& layout, int32_t num_pages,
                                     const PoolTransform& transform, int32_t filling_pages = 0,
                                     int32_t repair_slots = 0);

  const PagedKvView& view() const { return view_; }
  PagedKvView& view() { return view_; }
  // Allocated for tokens alone: measured, not computed from the layout.
  int64_t record_bytes() const { return static_cast<int64_t>(records_.bytes()); }
  int64_t side_bytes() const { return static_cast<int64_t>(value_norms_.bytes()); }
  int32_t first_repair_slot() const { return first_repair_slot_; }

 private:
  absl::Status add_tables(Device& device, const PoolTransform& transform);
  absl::Status add_exact_pages(Device& device, int64_t num_slots);

  Buffer records_, value_norms_, signs_, lambda_, bypass_, key_scale_, value_scale_, dither_, exact_rows_, exact_slots_;
  PagedKvView view_;
  int32_t first_repair_slot_ = 0;
};

}  // namespace assay
