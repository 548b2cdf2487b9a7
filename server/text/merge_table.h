// Ranked merges of pairs of tokens, and which symbols can ever meet in one.
//
// Threads: immutable after the last add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
    int32_t result = -1;
  };

  void reserve(std::size_t count);
  // A pair that is there already gets the new rank and result.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t result);
  // The merge of two neighbours; rank kNoRank when there is none.
  const Merge& find(int32_t left, int32_t right) const;
  uint32_t rank(int32_t left, int32_t right) const { return find(left, right).rank; }

  // Junctions: some merge has a left side that ends in symbol `left` and a right side that starts with symbol `right`.
  // Where two symbols of a text have no junction no merge ever crosses, so the text may be cut there. May say yes for a
  // few others.
  void add_junction(int32_t left, int32_t right) { set_junction(junction_bit(left, right)); }
  bool has_junction(int32_t left, int32_t right) const {
    const uint64_t bit = junction_bit(left, right);
    return (junctions_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  static constexpr uint64_t kNoPair = UINT64_MAX;
  static constexpr int kJunctionBits = 21;

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t mix(uint64_t pair) { return (pair ^ pair >> 29) * 0x9E3779B97F4A7C15ull; }
  static uint64_t junction_bit(int32_t left, int32_t right) {
    return mix(pair_of(left, right)) >> (64 - kJunctionBits);
  }
  void set_junction(uint64_t bit) { junctions_[bit / 64] |= uint64_t{1} << (bit % 64); }

  std::vector<Merge> slots_ = std::vector<Merge>(2);  // open addressing, a power of two, at most half full
  int shift_ = 63;
  std::vector<uint64_t> junctions_ = std::vector<uint64_t>(std::size_t{1} << (kJunctionBits - 6));
};

}  // namespace assay
