// Hands out page ids and counts their holders. It touches no memory: what a page's bytes are is the pool's business.
//
// Owns: the free list and one count per page. A PageHandle is one count; the page is free again when its last handle
// goes.
// Threads: one at a time, handles included. Handles must not outlive their allocator.
// Errors: try_allocate returns an empty handle when no page is free.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace assay {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

class PageAllocator;

// One holder's count on one page. Copy = one more holder. Empty handles hold nothing.
class PageHandle {
 public:
  PageHandle() = default;
  PageHandle(const PageHandle& other);
  PageHandle(PageHandle&& other) noexcept { swap(other); }
  PageHandle& operator=(PageHandle other) noexcept {
    swap(other);
    return *this;
  }
  ~PageHandle();

  PageId id() const { return id_; }  // kNoPage when empty
  explicit operator bool() const { return id_ != kNoPage; }

 private:
  friend class PageAllocator;
  PageHandle(PageAllocator* allocator, PageId id) : allocator_(allocator), id_(id) {}  // takes over one count
  void swap(PageHandle& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(id_, other.id_);
  }

  PageAllocator* allocator_ = nullptr;
  PageId id_ = kNoPage;
};

class PageAllocator {
 public:
  explicit PageAllocator(int32_t num_pages);  // ids are 0 .. num_pages - 1
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  PageHandle try_allocate();      // the only handle of a free page, or an empty one
  PageHandle share(PageId page);  // one more handle of a page that is held already

  // Pages whose last holder went since the last call, oldest first; a page may be held again by now, or be listed twice.
  std::vector<PageId> take_freed() { return std::exchange(freed_, {}); }

  int32_t num_pages() const { return static_cast<int32_t>(holders_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_holders(PageId page) const { return holders_[page]; }

 private:
  friend class PageHandle;
  void hold(PageId page);
  void drop(PageId page);

  std::vector<PageId> free_;  // last in, first out: recently used pages are warm
  std::vector<int32_t> holders_;
  std::vector<PageId> freed_;
};

}  // namespace assay
