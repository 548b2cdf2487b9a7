#include "cache/prefix_index.h"

#include <algorithm>
#include <utility>

#include "cache/check.h"

namespace assay {
namespace {

// First word of each hashed message, so that no message of one kind equals one of another.
constexpr uint64_t kStartTag = 0x7472617473ULL;
constexpr uint64_t kPageTag = 0x65676170ULL;

}  // namespace

PrefixIndex::PrefixIndex(PageAllocator* allocator, PrefixIndexOptions options)
    : allocator_(allocator), options_(std::move(options)), entries_(allocator->num_pages()) {
  ASSAY_CHECK(options_.block_size > 0, "a page holds at least one token");
}

std::vector<PageId> PrefixIndex::match(const int32_t* tokens, int32_t max_pages, const std::string& salt) const {
  std::vector<PageId> pages;
  PageId parent = kNoPage;
  uint64_t hash = start_hash(salt);
  while (static_cast<int32_t>(pages.size()) < max_pages) {
    const int32_t* block = tokens + pages.size() * options_.block_size;
    hash = next_hash(hash, block);
    parent = find(parent, hash, block, salt);
    if (parent == kNoPage) break;
    pages.push_back(parent);
  }
  return pages;
}

PrefixChain PrefixIndex::chain_of(const std::vector<PageId>& pages) const {
  if (pages.empty()) return {};
  return {static_cast<int32_t>(pages.size()), pages.back(), entries_[pages.back()].serial};
}

void PrefixIndex::extend(PrefixChain& chain, const int32_t* tokens, int32_t num_full_pages, const std::string& salt,
                         const std::vector<PageHandle>& pages) {
  // An eviction may have taken the chain away; then it is indexed again from the start.
  if (!is_current(chain)) chain = {};
  while (chain.length < num_full_pages) {
    const int32_t* block = tokens + static_cast<int64_t>(chain.length) * options_.block_size;
    const uint64_t parent_hash = chain.last == kNoPage ? start_hash(salt) : entries_[chain.last].hash;
    const uint64_t hash = next_hash(parent_hash, block);
    PageId page = find(chain.last, hash, block, salt);
    if (page == kNoPage) {
      page = pages[chain.length].id();
      insert(pages[chain.length], chain.last, hash, block, salt);
    }
    chain = {chain.length + 1, page, entries_[page].serial};
  }
}

void PrefixIndex::note_taken(PageId page) {
  if (entries_[page].idle) unlink_idle(page);
}

void PrefixIndex::note_dropped(PageId page) {
  if (contains(page) && !entries_[page].idle && allocator_->num_holders(page) == 1) push_idle(page);
}

bool PrefixIndex::evict_one() {
  if (oldest_idle_ == kNoPage) return false;
  remove_with_descendants(oldest_idle_);
  return true;
}

uint64_t PrefixIndex::start_hash(const std::string& salt) const {
  SipHasher hasher(options_.hash_key);
  hasher.add(kStartTag);
  hasher.add(options_.domain);
  hasher.add(salt);
  return truncated(hasher.finish());
}

uint64_t PrefixIndex::next_hash(uint64_t parent_hash, const int32_t* tokens) const {
  SipHasher hasher(options_.hash_key);
  hasher.add(kPageTag);
  hasher.add(parent_hash);
  for (int32_t i = 0; i < options_.block_size; ++i) hasher.add(static_cast<uint32_t>(tokens[i]));
  return truncated(hasher.finish());
}

uint64_t PrefixIndex::truncated(uint64_t hash) const {
  return options_.hash_bits >= 64 ? hash : hash & ((uint64_t{1} << options_.hash_bits) - 1);
}

PageId PrefixIndex::find(PageId parent, uint64_t hash, const int32_t* tokens, const std::string& salt) const {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto candidate = first; candidate != last; ++candidate) {
    const Entry& entry = entries_[candidate->second];
    if (entry.parent != parent || !std::equal(entry.tokens.begin(), entry.tokens.end(), tokens)) continue;
    if (parent == kNoPage && entry.salt != salt) continue;
    return candidate->second;
  }
  return kNoPage;
}

bool PrefixIndex::is_current(const PrefixChain& chain) const {
  return chain.last == kNoPage || (contains(chain.last) && entries_[chain.last].serial == chain.serial);
}

void PrefixIndex::insert(PageHandle handle, PageId parent, uint64_t hash, const int32_t* tokens,
                         const std::string& salt) {
  const PageId page = handle.id();
  Entry& entry = entries_[page];
  ASSAY_CHECK(!contains(page), "a page is in the index at most once");
  entry.handle = std::move(handle);
  entry.hash = hash;
  entry.serial = next_serial_++;
  entry.tokens.assign(tokens, tokens + options_.block_size);
  entry.parent = parent;
  if (parent == kNoPage) {
    entry.salt = salt;
  } else {
    entry.next_sibling = entries_[parent].first_child;
    if (entry.next_sibling != kNoPage) entries_[entry.next_sibling].previous_sibling = page;
    entries_[parent].first_child = page;
  }
  by_hash_.emplace(hash, page);
}

void PrefixIndex::remove_with_descendants(PageId page) {
  unlink_child(page);
  std::vector<PageId> pending{page};
  while (!pending.empty()) {
    const PageId next = pending.back();
    pending.pop_back();
    for (PageId child = entries_[next].first_child; child != kNoPage; child = entries_[child].next_sibling) {
      pending.push_back(child);
    }
    remove(next);
  }
}

void PrefixIndex::remove(PageId page) {
  if (entries_[page].idle) unlink_idle(page);
  const auto [first, last] = by_hash_.equal_range(entries_[page].hash);
  by_hash_.erase(std::find_if(first, last, [page](const auto& item) { return item.second == page; }));
  entries_[page] = Entry{};
}

void PrefixIndex::unlink_child(PageId page) {
  Entry& entry = entries_[page];
  if (entry.previous_sibling != kNoPage) {
    entries_[entry.previous_sibling].next_sibling = entry.next_sibling;
  } else if (entry.parent != kNoPage) {
    entries_[entry.parent].first_child = entry.next_sibling;
  }
  if (entry.next_sibling != kNoPage) entries_[entry.next_sibling].previous_sibling = entry.previous_sibling;
}

void PrefixIndex::push_idle(PageId page) {
  Entry& entry = entries_[page];
  entry.idle = true;
  entry.older = newest_idle_;
  entry.newer = kNoPage;
  (newest_idle_ == kNoPage ? oldest_idle_ : entries_[newest_idle_].newer) = page;
  newest_idle_ = page;
  ++num_idle_;
}

void PrefixIndex::unlink_idle(PageId page) {
  Entry& entry = entries_[page];
  (entry.newer == kNoPage ? newest_idle_ : entries_[entry.newer].older) = entry.older;
  (entry.older == kNoPage ? oldest_idle_ : entries_[entry.older].newer) = entry.newer;
  entry.newer = entry.older = kNoPage;
  entry.idle = false;
  --num_idle_;
}

}  // namespace assay
