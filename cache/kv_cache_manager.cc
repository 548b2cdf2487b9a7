#include "cache/kv_cache_manager.h"

#include <utility>

#include "cache/check.h"

namespace assay {

KvPlan::KvPlan(const KvCacheManager* cache)
    : cache_(cache), version_(cache->version_), available_(cache->allocator_.num_free() + cache->index_.num_idle()) {}

bool KvPlan::admit(SequenceId id, PrefixMatch match, std::string salt, int32_t num_tokens, int32_t reserve) {
  const int32_t num_matched = static_cast<int32_t>(match.pages.size());
  const int32_t num_new = cache_->num_pages_for(num_tokens) - num_matched;
  ASSAY_CHECK(num_new > 0, "an admitted sequence has at least one token to compute");
  int32_t num_revived = 0;  // matched pages that are available now and will not be
  for (const PageId page : match.pages) num_revived += num_owners(page) == 0;
  if (num_new + num_revived + reserve > available_) return false;
  available_ -= num_new + num_revived;
  for (const PageId page : match.pages) ++owner_changes_[page];
  admissions_.push_back({id, std::move(match), std::move(salt), num_new});
  return true;
}

bool KvPlan::grow(SequenceId id, int32_t num_tokens) {
  const int32_t held = static_cast<int32_t>(cache_->pages(id).size()) + planned_growth(id);
  const int32_t num_new = cache_->num_pages_for(num_tokens) - held;
  if (num_new <= 0) return true;
  if (num_new > available_) return false;
  available_ -= num_new;
  growth_[id] += num_new;
  return true;
}

void KvPlan::release(SequenceId id) {
  available_ += planned_growth(id);
  growth_.erase(id);
  for (const PageId page : cache_->pages(id)) {
    --owner_changes_[page];
    available_ += num_owners(page) == 0;
  }
  releases_.push_back(id);
}

int32_t KvPlan::num_owners(PageId page) const {
  const auto change = owner_changes_.find(page);
  return cache_->num_owners(page) + (change == owner_changes_.end() ? 0 : change->second);
}

int32_t KvPlan::planned_growth(SequenceId id) const {
  const auto growth = growth_.find(id);
  return growth == growth_.end() ? 0 : growth->second;
}

KvCacheManager::KvCacheManager(KvCacheOptions options)
    : options_(std::move(options)), allocator_(options_.num_pages), index_(&allocator_, options_.prefix) {}

PrefixMatch KvCacheManager::match(const int32_t* tokens, int32_t num_tokens, const std::string& salt) const {
  if (!options_.enable_prefix_caching) return {};
  PrefixMatch match;
  match.pages = index_.match(tokens, (num_tokens - 1) / block_size(), salt);
  match.num_tokens = static_cast<int32_t>(match.pages.size()) * block_size();
  return match;
}

// Shared pages are taken first, so that no allocation below can evict them, then pages are given back, then given out.
void KvCacheManager::commit(KvPlan plan) {
  ASSAY_CHECK(plan.cache_ == this && plan.version_ == version_, "a plan is committed to the state it was made for");
  for (KvPlan::Admission& admission : plan.admissions_) {
    PageTable& table = tables_[admission.id];
    ASSAY_CHECK(table.ids.empty(), "an admitted sequence holds nothing yet");
    table.salt = std::move(admission.salt);
    table.indexed = index_.chain_of(admission.match.pages);
    for (const PageId page : admission.match.pages) {
      table.handles.push_back(allocator_.share(page));
      table.ids.push_back(page);
      index_.note_taken(page);
    }
  }
  for (const SequenceId id : plan.releases_) release(id);
  for (const KvPlan::Admission& admission : plan.admissions_) {
    append_new_pages(tables_[admission.id], admission.num_new_pages);
  }
  for (const auto& [id, num_new_pages] : plan.growth_) append_new_pages(tables_.at(id), num_new_pages);
  ++version_;
}

void KvCacheManager::mark_computed(SequenceId id, const int32_t* tokens, int32_t num_computed) {
  if (!options_.enable_prefix_caching) return;
  PageTable& table = tables_.at(id);
  const int32_t num_full_pages = num_computed / block_size();
  if (num_full_pages <= table.indexed.length) return;
  index_.extend(table.indexed, tokens, num_full_pages, table.salt, table.handles);
  ++version_;
}

// The last page is dropped first: a chain then leaves the cache from its end.
void KvCacheManager::release(SequenceId id) {
  const auto found = tables_.find(id);
  if (found == tables_.end()) return;
  PageTable table = std::move(found->second);
  tables_.erase(found);
  while (!table.handles.empty()) {
    const PageId page = table.handles.back().id();
    table.handles.pop_back();
    index_.note_dropped(page);
  }
  ++version_;
}

const std::vector<PageId>& KvCacheManager::pages(SequenceId id) const {
  const auto found = tables_.find(id);
  ASSAY_CHECK(found != tables_.end(), "only an admitted sequence has pages");
  return found->second.ids;
}

int32_t KvCacheManager::num_pages_for(int32_t num_tokens) const {
  return static_cast<int32_t>((int64_t{num_tokens} + block_size() - 1) / block_size());
}

KvCacheUsage KvCacheManager::usage() const {
  const int32_t cached = index_.num_idle();
  return {allocator_.num_pages(), allocator_.num_pages() - allocator_.num_free() - cached, cached};
}

std::string KvCacheManager::find_violation() const {
  std::vector<int32_t> owners(allocator_.num_pages(), 0);
  std::vector<SequenceId> last_owner(allocator_.num_pages(), -1);
  for (const auto& [id, table] : tables_) {
    if (table.handles.size() != table.ids.size()) return "a page table differs from its handles";
    for (size_t i = 0; i < table.ids.size(); ++i) {
      if (table.handles[i].id() != table.ids[i]) return "a page table differs from its handles";
      if (std::exchange(last_owner[table.ids[i]], id) == id) return "a page is twice in one table";
      ++owners[table.ids[i]];
    }
  }
  int32_t num_in_use = 0, num_cached = 0, num_indexed = 0;
  for (PageId page = 0; page < allocator_.num_pages(); ++page) {
    const bool indexed = index_.contains(page);
    if (owners[page] + indexed != allocator_.num_holders(page)) {
      return "page " + std::to_string(page) + " has holders that are neither a sequence nor the index";
    }
    num_in_use += owners[page] > 0;
    num_cached += owners[page] == 0 && indexed;
    num_indexed += indexed;
  }
  if (num_cached != index_.num_idle()) return "the idle list is not the set of pages held by the index alone";
  if (num_indexed != index_.num_entries()) return "the index has entries without a page";
  if (num_in_use + num_cached + allocator_.num_free() != allocator_.num_pages()) return "a page is lost";
  return "";
}

int32_t KvCacheManager::num_owners(PageId page) const {
  return allocator_.num_holders(page) - (index_.contains(page) ? 1 : 0);
}

void KvCacheManager::append_new_pages(PageTable& table, int32_t num_pages) {
  for (int32_t i = 0; i < num_pages; ++i) {
    PageHandle handle = allocator_.try_allocate();
    if (!handle) {
      ASSAY_CHECK(index_.evict_one(), "a plan never gives out more pages than there are");
      handle = allocator_.try_allocate();
    }
    table.ids.push_back(handle.id());
    table.handles.push_back(std::move(handle));
  }
}

}  // namespace assay
