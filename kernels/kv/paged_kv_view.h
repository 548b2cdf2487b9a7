// All that a kernel knows of a paged KV cache, and the only place that computes an address in it.
//
// A page holds `page_tokens` tokens (a multiple of 16) of every layer and KV head. Its unit is the record: 16 tokens of
// one KV head in one layer, contiguous. Where a record lies is the same for every pool; what its bytes mean depends on
// `format`.
//
//   memory: [layer][page][KV head][tile of the page][record_bytes]
//
// KvFormat::kExact record, elements of `dtype`:
//   K  [head_dim][16]   transposed: the 16 scores of a tile are one vector, no sums across lanes
//   V  [16][head_dim]
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace assay {

constexpr int32_t kTileTokens = 16;

enum class KvFormat : uint8_t { kExact };

struct PagedKvView {
  std::byte* base = nullptr;
  KvFormat format = KvFormat::kExact;
  DType dtype = DType::kF32;
  int32_t num_layers = 0;
  int32_t num_pages = 0;
  int32_t page_tokens = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int64_t record_bytes = 0;

  int32_t tiles_per_page() const { return page_tokens / kTileTokens; }
  int64_t page_layer_bytes() const { return int64_t{num_kv_heads} * tiles_per_page() * record_bytes; }

  std::byte* record(int32_t layer, int32_t page, int32_t kv_head, int32_t tile) const {
    const int64_t page_index = int64_t{layer} * num_pages + page;
    return base + page_index * page_layer_bytes() + (int64_t{kv_head} * tiles_per_page() + tile) * record_bytes;
  }

  // The record of token position `position` of a sequence with block table `pages`.
  std::byte* record_of(int32_t layer, const int32_t* pages, int32_t kv_head, int32_t position) const {
    return record(layer, pages[position / page_tokens], kv_head, position % page_tokens / kTileTokens);
  }
};

// Inside one exact record.
struct ExactRecord {
  static int64_t bytes(int32_t head_dim, DType dtype) {
    return int64_t{2} * kTileTokens * head_dim * static_cast<int64_t>(dtype_bytes(dtype));
  }
  static int64_t k_index(int32_t channel, int32_t token) { return int64_t{channel} * kTileTokens + token; }
  static int64_t v_index(int32_t head_dim, int32_t channel, int32_t token) {
    return int64_t{kTileTokens} * head_dim + int64_t{token} * head_dim + channel;
  }
};

}  // namespace assay
