#include "kernels/cpu/page_rows.h"

#include <algorithm>
#include <cstring>

namespace assay {

PageRows::PageRows(const PoolProblem& problem, const PoolItem& item) : problem_(problem), item_(item) {
  const int32_t tokens = problem.cache.page_tokens;
  const int32_t* pages = problem.batch.pages_of(item.sequence);
  for (int32_t i = 0; i * tokens < item.stored; ++i) {
    rows_.push_back(problem.cache.exact_page(problem.layer, item.kv_head, pages[i]));
  }
  refused_.assign(rows_.size(), false);
}

bool PageRows::all_exact() const {
  return std::find(rows_.begin(), rows_.end(), nullptr) == rows_.end();
}

bool PageRows::read_back(int32_t page, const kv::GateView& gate, bool keep, kv::GateTally& tally) {
  const PagedKvView& cache = problem_.cache;
  const kv::BackingView& backing = cache.backing;
  const int32_t id = problem_.batch.pages_of(item_.sequence)[page];
  const auto refuse = [&] {
    refused_[static_cast<size_t>(page)] = true;
    tally.pages_not_backed += 1;
    return false;
  };
  if (!backing.covers(id)) return refuse();
  const int64_t block = backing.block(problem_.layer, id, item_.kv_head);
  const int32_t count = std::min(cache.page_tokens, item_.stored - page * cache.page_tokens);
  uint64_t failures = 0;
  for (int32_t token = 0; token < count; ++token) failures += !kv::row_is_intact(backing, block, token);
  tally.checksum_failures += failures;
  if (failures > 0) return refuse();
  tally.pages_in += 1;
  tally.bytes_in += static_cast<uint64_t>(count) * 2 * static_cast<uint64_t>(backing.row_bytes);
  const std::byte* rows = backing.k_row(block, 0);
  const int32_t slot = keep ? gate.repair.claim(cache.exact_key(problem_.layer, item_.kv_head, id)) : -1;
  if (slot >= 0) {
    std::byte* kept = cache.exact.rows + slot * cache.exact_slot_bytes();
    std::memcpy(kept, rows, static_cast<size_t>(backing.block_bytes()));
    rows = kept;
  }
  rows_[static_cast<size_t>(page)] = rows;
  return true;
}

}  // namespace assay
