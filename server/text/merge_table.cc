#include "server/text/merge_table.h"

#include <bit>

namespace assay {

void MergeTable::reserve(std::size_t count) {
  slots_.assign(std::bit_ceil(2 * count + 2), Merge());
  shift_ = 64 - std::countr_zero(slots_.size());
}

void MergeTable::add(int32_t left, int32_t right, uint32_t rank, int32_t result) {
  const uint64_t pair = pair_of(left, right);
  std::size_t i = mix(pair) >> shift_;
  while (slots_[i].pair != kNoPair && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {pair, rank, result};
}

const MergeTable::Merge& MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  std::size_t i = mix(pair) >> shift_;
  while (slots_[i].pair != kNoPair && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  return slots_[i];
}

}  // namespace assay
