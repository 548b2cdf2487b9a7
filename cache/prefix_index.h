// Which page already holds the K and V of a token prefix. An entry is one full page; entries form chains by parent,
// and a chain is found again by its tokens.
//
// Key of an entry: SipHash under a secret key of (the parent's hash, its own token ids); the hash of a chain's start
// covers the domain (pool, dtype, page size) and the salt, each tagged with its length. The hash only finds
// candidates. A hit is accepted when the parent is the very entry matched before, all token ids are equal and, at the
// start, the salt is equal: colliding hashes cost time, never a wrong page.
//
// Owns: one handle per indexed page. An entry whose page nobody else holds is idle and can be evicted, least recently
// used first; its descendants leave the index with it, because nothing can reach them any more.
// Threads: one at a time.
// Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/page_allocator.h"
#include "cache/sip_hash.h"

namespace assay {

struct PrefixIndexOptions {
  std::string domain;      // identity of what the pages store: pool, dtype and whatever else changes their bytes
  int32_t block_size = 0;  // tokens per page
  SipKey hash_key;         // secret in production
  int32_t hash_bits = 64;  // tests shorten it to force collisions; results must stay right
};

// How far a sequence's full pages are indexed: `length` pages from the start, the last of them equal to entry `last`.
struct PrefixChain {
  int32_t length = 0;
  PageId last = kNoPage;
  uint64_t serial = 0;  // of that entry, since page ids are used again
};

class PrefixIndex {
 public:
  PrefixIndex(PageAllocator* allocator, PrefixIndexOptions options);

  // Pages of the longest indexed chain equal to the first pages of `tokens`, at most `max_pages`. Changes nothing.
  std::vector<PageId> match(const int32_t* tokens, int32_t max_pages, const std::string& salt) const;

  // The chain of pages returned by match.
  PrefixChain chain_of(const std::vector<PageId>& pages) const;

  // Indexes the first `num_full_pages` pages of a sequence, from `chain` on. `pages` are the sequence's own; where
  // equal content is indexed already that entry stays and the sequence keeps its own copy unshared.
  void extend(PrefixChain& chain, const int32_t* tokens, int32_t num_full_pages, const std::string& salt,
              const std::vector<PageHandle>& pages);

  // To be called when a sequence has taken a page that may be indexed, and after it has dropped one.
  void note_taken(PageId page);
  void note_dropped(PageId page);

  // Evicts the least recently used idle entry. False: there is none. At least one page is free after true.
  bool evict_one();

  bool contains(PageId page) const { return entries_[page].handle.id() != kNoPage; }
  int32_t num_entries() const { return static_cast<int32_t>(by_hash_.size()); }
  int32_t num_idle() const { return num_idle_; }  // pages that evict_one could free

 private:
  struct Entry {
    PageHandle handle;  // empty: this page is not indexed
    uint64_t hash = 0;
    uint64_t serial = 0;
    std::vector<int32_t> tokens;  // [block_size]
    std::string salt;             // of a chain's first entry; empty otherwise
    PageId parent = kNoPage;
    PageId first_child = kNoPage, next_sibling = kNoPage, previous_sibling = kNoPage;
    bool idle = false;
    PageId newer = kNoPage, older = kNoPage;  // neighbours in the idle list
  };

  uint64_t start_hash(const std::string& salt) const;
  uint64_t next_hash(uint64_t parent_hash, const int32_t* tokens) const;
  uint64_t truncated(uint64_t hash) const;
  PageId find(PageId parent, uint64_t hash, const int32_t* tokens, const std::string& salt) const;
  bool is_current(const PrefixChain& chain) const;
  void insert(PageHandle handle, PageId parent, uint64_t hash, const int32_t* tokens, const std::string& salt);
  void remove_with_descendants(PageId page);
  void remove(PageId page);
  void unlink_child(PageId page);
  void push_idle(PageId page);
  void unlink_idle(PageId page);

  PageAllocator* allocator_;
  PrefixIndexOptions options_;
  std::vector<Entry> entries_;  // by page id: a page is in the index at most once
  std::unordered_multimap<uint64_t, PageId> by_hash_;
  uint64_t next_serial_ = 1;
  PageId newest_idle_ = kNoPage, oldest_idle_ = kNoPage;
  int32_t num_idle_ = 0;
};

}  // namespace assay
