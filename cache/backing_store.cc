#include "cache/backing_store.h"

#include <algorithm>
#include <string>

namespace assay {
namespace {

int64_t rows_per_page(const KvShape& shape) {
  return int64_t{shape.num_layers} * shape.num_kv_heads * shape.page_tokens;
}

int32_t row_bytes(const KvShape& shape) {
  return shape.head_dim * static_cast<int32_t>(dtype_bytes(shape.row_dtype));
}

}  // namespace

int64_t BackingStore::bytes_per_page(const KvShape& shape) {
  return rows_per_page(shape) * (int64_t{2} * row_bytes(shape) + static_cast<int64_t>(sizeof(uint64_t)));
}

absl::StatusOr<BackingStore> BackingStore::make(Device& device, const KvShape& shape, int32_t num_pages,
                                                int64_t limit_bytes) {
  BackingStore store;
  store.page_bytes_ = bytes_per_page(shape);
  store.num_slots_ = std::min<int64_t>(num_pages, limit_bytes / store.page_bytes_);
  store.limit_bytes_ = store.num_slots_ * store.page_bytes_;
  if (store.num_slots_ < 1) {
    return absl::InvalidArgumentError("kv_backing_memory of " + std::to_string(limit_bytes) +
                                      " bytes holds no page (a page takes " + std::to_string(store.page_bytes_) +
                                      " bytes); give it more, or use kv_backing none with kv_gate observe");
  }
  const int64_t rows = store.num_slots_ * rows_per_page(shape);
  const auto allocate = [&](int64_t bytes) {
    return Buffer::make(device, static_cast<size_t>(bytes), MemoryKind::kPinnedHost);
  };
  store.rows_ = allocate(rows * 2 * row_bytes(shape));
  store.checksums_ = allocate(rows * static_cast<int64_t>(sizeof(uint64_t)));
  store.slots_ = allocate(int64_t{num_pages} * static_cast<int64_t>(sizeof(int32_t)));
  if (store.rows_.data() == nullptr || store.checksums_.data() == nullptr || store.slots_.data() == nullptr) {
    return absl::ResourceExhaustedError("no host memory for a backing store of " +
                                        std::to_string(store.limit_bytes_ >> 20) + " MiB; lower kv_backing_memory");
  }
  std::fill_n(static_cast<int32_t*>(store.slots_.data()), num_pages, -1);
  for (int64_t slot = store.num_slots_ - 1; slot >= 0; --slot) store.free_slots_.push_back(static_cast<int32_t>(slot));
  store.view_ = {.rows = static_cast<std::byte*>(store.rows_.data()),
                 .checksums = static_cast<uint64_t*>(store.checksums_.data()),
                 .slots = static_cast<const int32_t*>(store.slots_.data()),
                 .num_layers = shape.num_layers,
                 .num_kv_heads = shape.num_kv_heads,
                 .page_tokens = shape.page_tokens,
                 .row_bytes = row_bytes(shape)};
  return store;
}

void BackingStore::release(PageId page) {
  if (!covers(page)) return;
  free_slots_.push_back(slot_of(page));
  slot_of(page) = -1;
}

void BackingStore::begin(PageId page) {
  if (!exists()) return;
  if (!covers(page)) {
    if (free_slots_.empty()) {
      ++skipped_pages_;
      return;
    }
    slot_of(page) = free_slots_.back();
    free_slots_.pop_back();
  }
  const int64_t rows = int64_t{view_.num_layers} * view_.num_kv_heads * view_.page_tokens;
  std::fill_n(&view_.checksum(view_.block(0, page, 0), 0), rows, kv::kRowAbsent);
}

}  // namespace assay
