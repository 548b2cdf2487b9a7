#include "server/text/bpe.h"

#include <algorithm>
#include <functional>

#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr size_t kShort = 32;  // up to here looking at all ranks beats a heap
constexpr uint32_t kEnd = UINT32_MAX;

}  // namespace

int32_t Bpe::character_id(std::string_view piece, size_t begin, size_t end) const {
  size_t i = begin;
  const char32_t c = utf8_next(piece, i);
  return c < character_ids_.size() ? character_ids_[c] : vocabulary_.find(piece.substr(begin, end - begin));
}

bool Bpe::append_bytes(std::string_view character, std::vector<int32_t>& symbols) const {
  const auto id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return id(c) < 0; })) return false;
  for (const char c : character) symbols.push_back(id(c));
  return true;
}

// An unknown token waits for the next known character, behind which byte tokens of the same stretch do not fall back:
// this is the order that the format's own implementation gives.
void Bpe::to_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool waiting = false;
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = begin + utf8_length_at(piece, begin);
    const int32_t id = character_id(piece, begin, end);
    if (id >= 0) {
      if (waiting) symbols.push_back(unknown_id_);
      waiting = false;
      symbols.push_back(id);
    } else if (byte_fallback_ && append_bytes(piece.substr(begin, end - begin), symbols)) {
      // spelt by its bytes
    } else if (unknown_id_ >= 0) {
      if (waiting && !fuse_unknown_) symbols.push_back(unknown_id_);
      waiting = true;
    }
    begin = end;
  }
  if (waiting) symbols.push_back(unknown_id_);
}

// Most words of running text are one token; these need no merging.
int32_t Bpe::whole_token(std::string_view piece) const {
  if (piece.size() > longest_whole_bytes_) return -1;
  const int32_t id = vocabulary_.find(piece);
  const auto index = static_cast<size_t>(id);  // while the table is being made, it is empty
  return id >= 0 && index < encodes_to_itself_.size() && encodes_to_itself_[index] ? id : -1;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const int32_t whole = whole_token(piece);
  if (whole >= 0) return ids.push_back(whole);
  scratch.symbols.clear();
  to_symbols(piece, scratch.symbols);
  const std::span<int32_t> symbols(scratch.symbols);
  for (size_t begin = 0; begin < symbols.size();) {
    size_t end = begin + 1;
    while (end < symbols.size() && merges_.has_junction(symbols[end - 1], symbols[end])) ++end;
    merge(symbols.subspan(begin, end - begin), scratch, ids);
    begin = end;
  }
}

void Bpe::merge(std::span<int32_t> symbols, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (symbols.size() <= kShort) {
    merge_short(symbols, ids);
  } else {
    merge_long(symbols, scratch, ids);
  }
}

void Bpe::merge_short(std::span<int32_t> symbols, std::vector<int32_t>& ids) const {
  size_t n = symbols.size();
  std::array<uint32_t, kShort> ranks;  // of symbols i and i + 1
  const auto rank_at = [&](size_t i) { return merges_.rank(symbols[i], symbols[i + 1]); };
  for (size_t i = 0; i + 1 < n; ++i) ranks[i] = rank_at(i);
  while (n > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(n - 1));
    if (*best == MergeTable::kNoRank) break;
    const auto i = static_cast<size_t>(best - ranks.begin());
    symbols[i] = merges_.find(symbols[i], symbols[i + 1]).result;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(i + 2), symbols.begin() + static_cast<ptrdiff_t>(n),
              symbols.begin() + static_cast<ptrdiff_t>(i + 1));
    if (i + 2 < n) std::copy(best + 2, ranks.begin() + static_cast<ptrdiff_t>(n - 1), best + 1);
    --n;
    if (i + 1 < n) ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(n));
}

// A linked list of symbols and a heap of (rank, position); an entry whose rank is no longer that of its position is
// stale.
void Bpe::merge_long(std::span<int32_t> symbols, Scratch& scratch, std::vector<int32_t>& ids) const {
  const auto n = static_cast<uint32_t>(symbols.size());
  auto& [unused, ranks, next, previous, heap] = scratch;
  ranks.assign(n, MergeTable::kNoRank);
  next.resize(n);
  previous.resize(n);
  heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
    if (ranks[i] != MergeTable::kNoRank) heap.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](uint32_t i) {
    ranks[i] = next[i] == kEnd ? MergeTable::kNoRank : merges_.rank(symbols[i], symbols[next[i]]);
    if (ranks[i] == MergeTable::kNoRank) return;
    heap.push_back(uint64_t{ranks[i]} << 32 | i);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto i = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (ranks[i] != rank) continue;
    const uint32_t right = next[i];
    symbols[i] = merges_.find(symbols[i], symbols[right]).result;
    ranks[right] = MergeTable::kNoRank;
    next[i] = next[right];
    if (next[i] != kEnd) previous[next[i]] = i;
    refresh(i);
    if (previous[i] != kEnd) refresh(previous[i]);
  }
  for (uint32_t i = 0; i != kEnd; i = next[i]) ids.push_back(symbols[i]);
}

}  // namespace assay
