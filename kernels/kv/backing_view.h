// Exact rows of pages in host memory beside a compressed pool, and the checksum that each is read back through.
//
// A row is what the model made, rounded to the pool's dtype: neither balanced nor rotated. It is written with the token
// and carries a checksum over its bytes and its place, so that a flipped bit, a row of another place and a row that was
// never written since its page began are all found before anything is computed from them.
// Pure functions on memory of the owner (cache/backing_store.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv/host_device.h"

namespace assay::kv {

constexpr uint64_t kRowAbsent = 0;  // checksum of a row that was not written since its page began

// The block of a (layer, page, KV head) is that of ExactPages: K rows of the page's tokens, then V rows.
struct BackingView {
  std::byte* rows = nullptr;       // [slot][layer][KV head][K, V][page_tokens][row_bytes]
  uint64_t* checksums = nullptr;   // [slot][layer][KV head][page_tokens]
  const int32_t* slots = nullptr;  // [page] where its rows are, -1 = it has none; null = there is no backing store
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t page_tokens = 0;
  int32_t row_bytes = 0;  // of one K (or V) row: a multiple of 8

  ASSAY_HOST_DEVICE bool covers(int32_t page) const { return slots != nullptr && slots[page] >= 0; }
  ASSAY_HOST_DEVICE int64_t block_bytes() const { return int64_t{2} * page_tokens * row_bytes; }
  // Number of the block of a page that is covered.
  ASSAY_HOST_DEVICE int64_t block(int32_t layer, int32_t page, int32_t kv_head) const {
    return (int64_t{slots[page]} * num_layers + layer) * num_kv_heads + kv_head;
  }
  ASSAY_HOST_DEVICE std::byte* k_row(int64_t block, int32_t token) const {
    return rows + block * block_bytes() + int64_t{token} * row_bytes;
  }
  ASSAY_HOST_DEVICE std::byte* v_row(int64_t block, int32_t token) const {
    return k_row(block, page_tokens + token);
  }
  ASSAY_HOST_DEVICE uint64_t& checksum(int64_t block, int32_t token) const {
    return checksums[block * page_tokens + token];
  }
};

namespace detail {

// A bijection of 64-bit words.
ASSAY_HOST_DEVICE uint64_t mixed_word(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

constexpr uint64_t kWordStride = 0x9e3779b97f4a7c15u;

// Words of a row through bijections that differ by their number.
ASSAY_HOST_DEVICE uint64_t sum_of_words(const std::byte* row, int32_t row_bytes, uint64_t first_word) {
  uint64_t sum = 0;
  for (int32_t at = 0; at < row_bytes; at += 8) {
    uint64_t word;
    std::memcpy(&word, row + at, sizeof word);
    sum += mixed_word(word ^ ((first_word + static_cast<uint64_t>(at / 8)) * kWordStride));
  }
  return sum;
}

}  // namespace detail

// Of a K row and a V row at `place` (block x page_tokens + token). Sums of words, so lanes may share the work; a change
// within one word always changes it. Never kRowAbsent.
ASSAY_HOST_DEVICE uint64_t row_checksum(const std::byte* k, const std::byte* v, int32_t row_bytes, int64_t place) {
  const uint64_t sum = detail::mixed_word(static_cast<uint64_t>(place) + detail::kWordStride) +
                       detail::sum_of_words(k, row_bytes, 1) +
                       detail::sum_of_words(v, row_bytes, 1 + static_cast<uint64_t>(row_bytes / 8));
  return sum == kRowAbsent ? 1 : sum;
}

ASSAY_HOST_DEVICE uint64_t row_checksum(const BackingView& backing, int64_t block, int32_t token) {
  return row_checksum(backing.k_row(block, token), backing.v_row(block, token), backing.row_bytes,
                      block * backing.page_tokens + token);
}

// Whether a row pair is what was written there since its page began.
ASSAY_HOST_DEVICE bool row_is_intact(const BackingView& backing, int64_t block, int32_t token) {
  const uint64_t stored = backing.checksum(block, token);
  return stored != kRowAbsent && stored == row_checksum(backing, block, token);
}

}  // namespace assay::kv
