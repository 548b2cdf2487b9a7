#include "cache/page_allocator.h"

#include "cache/check.h"

namespace assay {

PageHandle::PageHandle(const PageHandle& other) : allocator_(other.allocator_), id_(other.id_) {
  if (allocator_ != nullptr) allocator_->hold(id_);
}

PageHandle::~PageHandle() {
  if (allocator_ != nullptr) allocator_->drop(id_);
}

PageAllocator::PageAllocator(int32_t num_pages) : holders_(num_pages, 0) {
  free_.reserve(num_pages);
  for (PageId page = num_pages - 1; page >= 0; --page) free_.push_back(page);
}

PageHandle PageAllocator::try_allocate() {
  if (free_.empty()) return {};
  const PageId page = free_.back();
  free_.pop_back();
  ASSAY_CHECK(holders_[page] == 0, "a free page has no holder");
  holders_[page] = 1;
  return {this, page};
}

PageHandle PageAllocator::share(PageId page) {
  hold(page);
  return {this, page};
}

void PageAllocator::hold(PageId page) {
  ASSAY_CHECK(holders_[page] > 0, "only a held page can get another holder");
  ++holders_[page];
}

void PageAllocator::drop(PageId page) {
  ASSAY_CHECK(holders_[page] > 0, "a page is dropped once per holder");
  if (--holders_[page] > 0) return;
  free_.push_back(page);
  freed_.push_back(page);
}

}  // namespace assay
