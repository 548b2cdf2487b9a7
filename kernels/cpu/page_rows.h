// The exact rows that an item reads instead of records: one pointer per page of its stored tokens, into the repair
// cache, a staging page or the backing store. Blocks all have the layout of ExactPages.
//
// Owns: the pointers. Threads: one; pages are read back by one thread at a time (the repair cache's rule).
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cpu/pool_problem.h"
#include "kernels/kv/gate.h"

namespace assay {

class PageRows {
 public:
  // What is exact already: pages with a slot.
  PageRows(const PoolProblem& problem, const PoolItem& item);

  int32_t count() const { return static_cast<int32_t>(rows_.size()); }
  bool is_exact(int32_t page) const { return rows_[static_cast<size_t>(page)] != nullptr; }
  bool is_refused(int32_t page) const { return refused_[static_cast<size_t>(page)]; }
  bool all_exact() const;
  const std::byte* const* data() const { return rows_.data(); }

  // Reads the page back through its checksums, into the repair cache if `keep` and there is room. False: it has no
  // intact rows, is refused from now on, and that is counted in `tally`.
  bool read_back(int32_t page, const kv::GateView& gate, bool keep, kv::GateTally& tally);

 private:
  const PoolProblem& problem_;
  const PoolItem& item_;
  std::vector<const std::byte*> rows_;  // [pages], null = the record is read
  std::vector<bool> refused_;
};

}  // namespace assay
