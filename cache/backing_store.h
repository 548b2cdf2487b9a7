// Exact rows of the pool's pages in (pinned) host memory: which page has a place there, and the memory itself.
//
// A page gets a slot when it begins (its first row is about to be written) and keeps it until its content goes. Where
// there is no slot left the page is skipped: it stays without exact rows for its whole life, and is counted. Rows and
// checksums are written and read by kernels, through the view.
//
// Owns: rows, checksums, the table of slots. Threads: one at a time, between steps. Errors: ResourceExhausted where the
// memory is not there; InvalidArgument for a limit that holds no page.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/page_allocator.h"
#include "cache/pool/pool_layout.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/kv/backing_view.h"

namespace assay {

class BackingStore {
 public:
  BackingStore() = default;  // none: covers no page
  // Room for as many pages as `limit_bytes` holds, at most twice `num_pages`: what is more than they need keeps the rows of
  // preempted sequences.
  static absl::StatusOr<BackingStore> make(Device& device, const KvShape& shape, int32_t num_pages,
                                           int64_t limit_bytes);
  // Host memory of one page: rows and checksums of all layers and KV heads.
  static int64_t bytes_per_page(const KvShape& shape);

  // The content of `page` is gone: its slot is free again, or kept for a parked sequence it belonged to. Nothing for a page
  // without one.
  void release(PageId page);
  // `page` is about to be written from its first row on: gives it a slot with no valid row in it. A page that has one
  // starts again in it.
  void begin(PageId page);
  bool covers(PageId page) const { return view_.covers(page); }

  // From now on the slots of a preempted sequence's whole pages are kept for it when their pages go: at once, or later, when
  // the prefix cache lets go of them. They are given up, youngest sequence first, when a page that begins finds no other.
  void park(int64_t sequence, std::span<const PageId> pages, int32_t num_tokens);
  // Positions of a parked sequence from which on all rows of whole pages are kept and intact (read through their checksums
  // once); empty for other sequences.
  struct Kept {
    int32_t first = 0, end = 0;  // multiples of the page size
  };
  Kept kept(int64_t sequence);
  // Gives the kept slots of pages first_page + i of the sequence to `pages`; the rest of its slots are free again.
  void restore(int64_t sequence, int32_t first_page, std::span<const PageId> pages);
  void drop(int64_t sequence);  // nothing for a sequence that is not parked
  bool is_parked(int64_t sequence) const { return parked_.contains(sequence); }

  const kv::BackingView& view() const { return view_; }
  bool exists() const { return view_.slots != nullptr; }
  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t used_bytes() const { return (num_slots_ - static_cast<int64_t>(free_slots_.size())) * page_bytes_; }
  int64_t skipped_pages() const { return skipped_pages_; }  // since start
  int64_t broken_rows() const { return broken_rows_; }      // of parked sequences, found when they were to come back

 private:
  kv::BackingView view_;
  Buffer rows_, checksums_, slots_;
  std::vector<int32_t> free_slots_;
  int64_t num_slots_ = 0, page_bytes_ = 0, limit_bytes_ = 0, skipped_pages_ = 0, broken_rows_ = 0;

  struct KeptPage {
    PageId page = kNoPage;  // whose slot it will be; none: it was released
    int32_t slot = -1;      // kept; -1: not yet, or another sequence has it
    bool checked = false;
  };
  using Parked = std::vector<KeptPage>;  // the sequence's pages from its first
  std::map<int64_t, Parked> parked_;  // by sequence: ids grow, so the last is the youngest and comes back last
  std::unordered_multimap<PageId, std::pair<int64_t, size_t>> claims_;  // who waits for the slot of a page
  bool is_intact(int32_t slot);
  bool find_slot();  // so that free_slots_ is not empty

  int32_t& slot_of(PageId page) { return static_cast<int32_t*>(slots_.data())[page]; }
};

}  // namespace assay
