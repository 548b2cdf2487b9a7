// The memory of the KV cache and of what a compressed pool keeps beside it.
//
// Owns: records, the side table, rotation and balance. The view stays valid as long as the pool. Threads: made once,
// then read only (kernels write through the view). Errors: ResourceExhausted where the memory is not there.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cache/pool/pool_layout.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"

namespace assay {

// Transform of a compressed pool's rows; empty = none.
struct PoolTransform {
  std::vector<float> signs;   // [head_dim]
  std::vector<float> lambda;  // [layer][KV head][head_dim]
};

class KvPool {
 public:
  static absl::StatusOr<KvPool> make(Device& device, const PoolLayout& layout, int32_t num_pages,
                                     const PoolTransform& transform);

  const PagedKvView& view() const { return view_; }
  // Allocated for tokens alone: measured, not computed from the layout.
  int64_t record_bytes() const { return static_cast<int64_t>(records_.bytes()); }
  int64_t side_bytes() const { return static_cast<int64_t>(value_norms_.bytes()); }

 private:
  Buffer records_, value_norms_, signs_, lambda_;
  PagedKvView view_;
};

}  // namespace assay
