// Which sequence holds which pages: the only public door to the cache's bookkeeping.
//
// A scheduling pass makes a KvPlan (a scratch copy of the counts), tries admissions, growth and releases on it, and
// either commits it as a whole or drops it, which is the roll back: until commit nothing has changed.
//
// Sharing: only full pages whose K and V have been computed are shared, through the prefix index; a page is never
// written again once it is full, so nothing is ever copied. Pages held by the prefix index alone count as available.
//
// Owns: page counts, page tables, the prefix index. Touches no memory of a page.
// Threads: one at a time (the engine thread).
// Errors: running out of pages is a `false` of KvPlan; a broken invariant aborts.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/page_allocator.h"
#include "cache/prefix_index.h"

namespace assay {

using SequenceId = int64_t;

struct KvCacheOptions {
  int32_t num_pages = 0;
  bool enable_prefix_caching = true;
  PrefixIndexOptions prefix;  // block_size is that of all pages
};

// Full pages that already hold the first `num_tokens` tokens of a sequence.
struct PrefixMatch {
  std::vector<PageId> pages;
  int32_t num_tokens = 0;  // pages x block size
};

// Pages; in use + cached + free = total.
struct KvCacheUsage {
  int32_t total = 0;
  int32_t in_use = 0;  // held by at least one sequence
  int32_t cached = 0;  // held by the prefix index alone
};

class KvCacheManager;

// What one scheduling pass wants. A value: copy it to try something. Valid until the manager next changes.
class KvPlan {
 public:
  // Pages that can still be given out, evicting cached ones.
  int32_t num_available() const { return available_; }

  // A new sequence that shares the pages of `match` and gets pages for `num_tokens` tokens in all (more than matched).
  // False, and nothing changes: not enough pages, or fewer than `reserve` would be left.
  bool admit(SequenceId id, PrefixMatch match, std::string salt, int32_t num_tokens, int32_t reserve);

  // Pages for `num_tokens` tokens in all. False, and nothing changes: not enough pages.
  bool grow(SequenceId id, int32_t num_tokens);

  // Gives back all pages of a sequence that the manager knows; growth planned for it is forgotten.
  void release(SequenceId id);

 private:
  friend class KvCacheManager;
  explicit KvPlan(const KvCacheManager* cache);
  int32_t num_owners(PageId page) const;  // sequences that hold it after this plan
  int32_t planned_growth(SequenceId id) const;

  struct Admission {
    SequenceId id;
    PrefixMatch match;
    std::string salt;
    int32_t num_new_pages;
  };

  const KvCacheManager* cache_;
  uint64_t version_;  // of the manager this plan was made for
  int32_t available_;
  std::unordered_map<PageId, int32_t> owner_changes_;
  std::vector<Admission> admissions_;
  std::unordered_map<SequenceId, int32_t> growth_;  // new pages
  std::vector<SequenceId> releases_;
};

class KvCacheManager {
 public:
  explicit KvCacheManager(KvCacheOptions options);

  // The longest shared prefix of tokens [num_tokens]. Never the last token: at least one is left to compute logits
  // from.
  PrefixMatch match(const int32_t* tokens, int32_t num_tokens, const std::string& salt) const;

  KvPlan plan() const { return KvPlan(this); }

  // Makes the plan true. The manager must not have changed since plan().
  void commit(KvPlan plan);

  // K and V of the first `num_computed` tokens are in the pages now: offers the full ones for sharing.
  void mark_computed(SequenceId id, const int32_t* tokens, int32_t num_computed);

  // Gives back all pages of a sequence outside a pass (it ended). Nothing for an unknown id.
  void release(SequenceId id);

  // Pages whose content is gone since the last call: what others keep for them (exact rows, repairs) may go. A page may
  // hold something new by now.
  std::vector<PageId> take_freed_pages() { return allocator_.take_freed(); }

  // Page table of a known sequence: entry i holds tokens [i x block size, (i + 1) x block size). Valid until it
  // changes.
  const std::vector<PageId>& pages(SequenceId id) const;
  bool knows(SequenceId id) const { return tables_.contains(id); }

  int32_t block_size() const { return options_.prefix.block_size; }
  int32_t num_pages_for(int32_t num_tokens) const;
  bool prefix_caching() const { return options_.enable_prefix_caching; }
  KvCacheUsage usage() const;

  // For tests: recounts everything; the first violated invariant in words, or an empty string.
  std::string find_violation() const;

 private:
  friend class KvPlan;
  struct PageTable {
    std::vector<PageHandle> handles;
    std::vector<PageId> ids;  // of the handles, as kernels read them
    std::string salt;
    PrefixChain indexed;
  };

  int32_t num_owners(PageId page) const;  // sequences
  void append_new_pages(PageTable& table, int32_t num_pages);

  KvCacheOptions options_;
  PageAllocator allocator_;
  PrefixIndex index_;
  std::unordered_map<SequenceId, PageTable> tables_;
  uint64_t version_ = 0;
};

}  // namespace assay
