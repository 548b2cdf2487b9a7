#include "cache/repair_cache.h"

#include <algorithm>

namespace assay {

absl::StatusOr<RepairCache> RepairCache::make(Device& device, const PagedKvView& pool, int32_t first_slot,
                                              int32_t num_slots) {
  RepairCache cache;
  if (num_slots < 1) return cache;
  const size_t words = static_cast<size_t>(num_slots) * 2 + 1;
  cache.memory_ = Buffer::make(device, words * sizeof(uint64_t), MemoryKind::kPinnedHost);
  if (cache.memory_.data() == nullptr) return absl::ResourceExhaustedError("no memory for the repair cache's table");
  auto* owners = static_cast<int64_t*>(cache.memory_.data());
  std::fill_n(owners, num_slots, int64_t{-1});
  auto* last_used = reinterpret_cast<uint64_t*>(owners + num_slots);
  std::fill_n(last_used, num_slots + 1, uint64_t{0});
  cache.view_ = {.slots = pool.exact.slots,
                 .first_slot = first_slot,
                 .num_slots = num_slots,
                 .owners = owners,
                 .last_used = last_used,
                 .evictions = last_used + num_slots};
  cache.num_layers_ = pool.num_layers;
  cache.num_kv_heads_ = pool.num_kv_heads;
  cache.num_pages_ = pool.num_pages;
  return cache;
}

void RepairCache::forget(PageId page) {
  if (view_.num_slots == 0) return;
  const int64_t heads = int64_t{num_layers_} * num_kv_heads_;
  for (int64_t head = 0; head < heads; ++head) view_.release(head * num_pages_ + page);
}

int32_t RepairCache::num_pages() const {
  return static_cast<int32_t>(
      std::count_if(view_.owners, view_.owners + view_.num_slots, [](int64_t owner) { return owner >= 0; }));
}

int64_t RepairCache::evictions() const {
  return view_.evictions == nullptr ? 0 : static_cast<int64_t>(*view_.evictions);
}

}  // namespace assay
