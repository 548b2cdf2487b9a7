#include "cache/backing_store.h"

#include <algorithm>
#include <string>
#include <utility>

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
  store.num_slots_ = std::min<int64_t>(int64_t{2} * num_pages, limit_bytes / store.page_bytes_);
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
  if (!exists()) return;
  const int32_t slot = std::exchange(slot_of(page), -1);
  const auto [first, last] = claims_.equal_range(page);
  KeptPage* oldest = nullptr;
  int64_t oldest_sequence = 0;
  for (auto claim = first; claim != last; ++claim) {
    const auto [sequence, index] = claim->second;
    KeptPage& kept = parked_.at(sequence)[index];
    kept.page = kNoPage;
    if (oldest != nullptr && sequence > oldest_sequence) continue;
    oldest = &kept;
    oldest_sequence = sequence;
  }
  claims_.erase(first, last);
  if (slot < 0) return;
  if (oldest != nullptr)
    oldest->slot = slot;
  else
    free_slots_.push_back(slot);
}

void BackingStore::begin(PageId page) {
  if (!exists()) return;
  if (!covers(page)) {
    if (!find_slot()) {
      ++skipped_pages_;
      return;
    }
    slot_of(page) = free_slots_.back();
    free_slots_.pop_back();
  }
  const int64_t rows = int64_t{view_.num_layers} * view_.num_kv_heads * view_.page_tokens;
  std::fill_n(&view_.checksum(view_.block(0, page, 0), 0), rows, kv::kRowAbsent);
}

bool BackingStore::find_slot() {
  for (auto parked = parked_.rbegin(); free_slots_.empty() && parked != parked_.rend();) {
    const auto holds = [](const KeptPage& kept) { return kept.slot >= 0; };
    const int64_t sequence = parked->first;
    const bool useful = std::any_of(parked->second.begin(), parked->second.end(), holds);
    ++parked;
    if (useful) {
      drop(sequence);
      break;
    }
  }
  return !free_slots_.empty();
}

void BackingStore::park(int64_t sequence, std::span<const PageId> pages, int32_t num_tokens) {
  if (!exists()) return;
  drop(sequence);
  for (const PageId page : pages.first(static_cast<size_t>(num_tokens / view_.page_tokens))) {
    Parked& parked = parked_[sequence];
    claims_.emplace(page, std::pair(sequence, parked.size()));
    parked.push_back({.page = page});
  }
}

bool BackingStore::is_intact(int32_t slot) {
  const int64_t blocks = int64_t{view_.num_layers} * view_.num_kv_heads;
  int64_t broken = 0;
  for (int64_t block = slot * blocks; block < (slot + 1) * blocks; ++block) {
    for (int32_t token = 0; token < view_.page_tokens; ++token) broken += !kv::row_is_intact(view_, block, token);
  }
  broken_rows_ += broken;
  return broken == 0;
}

BackingStore::Kept BackingStore::kept(int64_t sequence) {
  const auto found = parked_.find(sequence);
  if (found == parked_.end()) return {};
  Parked& pages = found->second;
  const auto end = static_cast<int32_t>(pages.size());
  int32_t first = end;
  while (first > 0 && pages[static_cast<size_t>(first - 1)].slot >= 0) {
    KeptPage& kept = pages[static_cast<size_t>(first - 1)];
    if (!kept.checked && !is_intact(kept.slot)) {
      free_slots_.push_back(std::exchange(kept.slot, -1));
      break;
    }
    kept.checked = true;
    --first;
  }
  return {first * view_.page_tokens, end * view_.page_tokens};
}

void BackingStore::restore(int64_t sequence, int32_t first_page, std::span<const PageId> pages) {
  Parked& parked = parked_.at(sequence);
  std::vector<int32_t> slots;
  for (size_t i = 0; i < pages.size(); ++i) {
    slots.push_back(std::exchange(parked.at(static_cast<size_t>(first_page) + i).slot, -1));
  }
  drop(sequence);
  for (size_t i = 0; i < pages.size(); ++i) {
    release(pages[i]);
    slot_of(pages[i]) = slots[i];
  }
}

void BackingStore::drop(int64_t sequence) {
  const auto found = parked_.find(sequence);
  if (found == parked_.end()) return;
  for (const KeptPage& kept : found->second) {
    if (kept.slot >= 0) free_slots_.push_back(kept.slot);
    if (kept.page == kNoPage) continue;
    const auto [first, last] = claims_.equal_range(kept.page);
    for (auto claim = first; claim != last;) claim = claim->second.first == sequence ? claims_.erase(claim) : std::next(claim);
  }
  parked_.erase(found);
}

}  // namespace assay
