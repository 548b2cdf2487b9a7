// All that a kernel knows of a paged KV cache, and the only place that computes an address in it.
//
// A page holds `page_tokens` tokens (a multiple of 16) of every layer and KV head. Its unit is the record: 16 tokens of
// one KV head in one layer (more under some observed schemes), contiguous. Where a record lies is the same for every pool; what its bytes mean depends on
// `format`.
//
//   memory: [layer][page][KV head][record of the page][record_bytes]
//
// KvFormat::kExact record, elements of `dtype`:
//   K  [head_dim][16]   transposed: the 16 scores of a tile are one vector, no sums across lanes
//   V  [16][head_dim]
// KvFormat::kCertified record: rows of transform_key and transform_value as biased bytes (codec.h) in fragment order
// (fragment_order.h), then fp16 arrays of 16 tokens: K scales, witnesses (both in token order), V scales, rho (both in
// value_side_index order). The exact row that witness and rho speak of is the model's row rounded to `dtype`.
//
// KvFormat::kWitcert record: payloads likewise; fp16 scales per group of 32 channels, of K [groups][16] in token order,
// of V [groups][16] in value_side_index order; then the bypassed channels of K, [channels][16] of `dtype`, in token
// order. No witness: radii come from the scales and the dither.
//
// KvFormat::kObserved record, of `record_tokens` tokens (the scheme's tile): encoded K, encoded V, fp16 band witnesses
// of K [tokens][bands], fp16 rho of V [tokens].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/dtype.h"
#include "kernels/kv/backing_view.h"
#include "kernels/kv/meter.h"
#include "kernels/kv/row_transform.h"

namespace assay {

namespace kv {
struct ObservedScheme;  // observed_codecs.h
}

constexpr int32_t kTileTokens = 16;

enum class KvFormat : uint8_t { kExact, kCertified, kWitcert, kObserved };

// Pools whose attention reads a slice's own rows from qkv, and only earlier positions from the cache.
constexpr bool is_compressed(KvFormat format) {
  return format != KvFormat::kExact;
}

// Where the dither of keys comes from: nowhere, a table that repeats with the token position, or a draw per position.
enum class DitherStream : uint8_t { kNone, kPeriodic, kPerSlot };

// What a compressed pool keeps beside its records; device memory of its owner. [layer][KV head] is of this rank.
struct KvPoolTables {
  const float* signs = nullptr;     // [head_dim] rotation; null = none
  const float* lambda = nullptr;    // [layer][KV head][head_dim] balance; null = none
  uint16_t* value_norms = nullptr;  // [layer][KV head][page] fp16 of the largest |v| of exact rows, rounded down

  const uint16_t* bypass = nullptr;  // [layer][KV head][bypass_count] channels of K stored in `dtype`; null = none
  int32_t bypass_count = 0;
  DitherStream dither_stream = DitherStream::kNone;
  const float* dither = nullptr;  // kPeriodic: [layer][KV head][head_dim][kDitherPeriod], by token position
  uint64_t seed = 0;              // of the dither, and of stochastic rounding
  int32_t first_kv_head = 0;      // global number of this rank's KV head 0, for draws
  const float* key_scale = nullptr;    // [layer][KV head] steps of schemes with one scale
  const float* value_scale = nullptr;  // likewise
  const kv::ObservedScheme* scheme = nullptr;  // of kObserved; host memory
};

// Pages whose rows are exact: attention reads these instead of the record, with the model's own query. They are pages
// that the gate has read back (cache/repair_cache.h), or pages that are still filling under a scheme that encodes whole
// pages. Rows are untransformed, of the pool's dtype; a row that is written to a page with a slot goes there too.
struct ExactPages {
  std::byte* rows = nullptr;  // [slot][K, V][page_tokens][head_dim]
  int32_t* slots = nullptr;   // [layer][KV head][page], -1 = none; null = no page has one
};

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
  int32_t record_tokens = kTileTokens;  // a multiple of 16 that divides page_tokens
  KvPoolTables tables;
  ExactPages exact;
  kv::BackingView backing;  // of compressed pools; rows are written there too

  ASSAY_HOST_DEVICE int32_t tiles_per_page() const { return page_tokens / kTileTokens; }
  ASSAY_HOST_DEVICE int32_t records_per_page() const { return page_tokens / record_tokens; }
  ASSAY_HOST_DEVICE int64_t page_layer_bytes() const {
    return int64_t{num_kv_heads} * records_per_page() * record_bytes;
  }

  ASSAY_HOST_DEVICE std::byte* record(int32_t layer, int32_t page, int32_t kv_head, int32_t tile) const {
    const int64_t page_index = int64_t{layer} * num_pages + page;
    const int64_t first = int64_t{kv_head} * records_per_page() + tile * kTileTokens / record_tokens;
    return base + page_index * page_layer_bytes() + first * record_bytes;
  }

  // The record of token position `position` of a sequence with block table `pages`.
  ASSAY_HOST_DEVICE std::byte* record_of(int32_t layer, const int32_t* pages, int32_t kv_head, int32_t position) const {
    return record(layer, pages[position / page_tokens], kv_head, position % page_tokens / kTileTokens);
  }

  // Index into ExactPages::slots.
  ASSAY_HOST_DEVICE int64_t exact_key(int32_t layer, int32_t kv_head, int32_t page) const {
    return (int64_t{layer} * num_kv_heads + kv_head) * num_pages + page;
  }
  ASSAY_HOST_DEVICE int64_t exact_slot_bytes() const {
    return int64_t{2} * page_tokens * head_dim * static_cast<int64_t>(dtype_bytes(dtype));
  }
  // K rows of the page, then V rows; null where the page has no exact rows here.
  ASSAY_HOST_DEVICE std::byte* exact_page(int32_t layer, int32_t kv_head, int32_t page) const {
    if (exact.slots == nullptr) return nullptr;
    const int32_t slot = exact.slots[exact_key(layer, kv_head, page)];
    return slot < 0 ? nullptr : exact.rows + slot * exact_slot_bytes();
  }

  ASSAY_HOST_DEVICE uint16_t* value_norms(int32_t layer, int32_t kv_head) const {
    return tables.value_norms + (int64_t{layer} * num_kv_heads + kv_head) * num_pages;
  }

  ASSAY_HOST_DEVICE kv::RowTransform transform(int32_t layer, int32_t kv_head) const {
    kv::RowTransform t;
    t.head_dim = head_dim;
    t.signs = tables.signs;
    const int64_t head = int64_t{layer} * num_kv_heads + kv_head;
    if (tables.lambda != nullptr) t.lambda = tables.lambda + head * head_dim;
    if (tables.bypass != nullptr) t.bypass = tables.bypass + head * tables.bypass_count;
    t.bypass_count = tables.bypass == nullptr ? 0 : tables.bypass_count;
    return t;
  }
};

// Inside one exact record.
struct ExactRecord {
  ASSAY_HOST_DEVICE static int64_t bytes(int32_t head_dim, DType dtype) {
    return int64_t{2} * kTileTokens * head_dim * static_cast<int64_t>(dtype_bytes(dtype));
  }
  ASSAY_HOST_DEVICE static int64_t k_index(int32_t channel, int32_t token) {
    return int64_t{channel} * kTileTokens + token;
  }
  ASSAY_HOST_DEVICE static int64_t v_index(int32_t head_dim, int32_t channel, int32_t token) {
    return int64_t{kTileTokens} * head_dim + int64_t{token} * head_dim + channel;
  }
};

// Inside one certified record: byte offsets.
struct CertifiedRecord {
  static constexpr int64_t kSideBytes = kTileTokens * 2;
  ASSAY_HOST_DEVICE static int64_t bytes(int32_t head_dim) { return k_scales(head_dim) + 4 * kSideBytes; }
  ASSAY_HOST_DEVICE static int64_t v_payload(int32_t head_dim) { return int64_t{kTileTokens} * head_dim; }
  ASSAY_HOST_DEVICE static int64_t k_scales(int32_t head_dim) { return int64_t{2} * kTileTokens * head_dim; }
  ASSAY_HOST_DEVICE static int64_t witness(int32_t head_dim) { return k_scales(head_dim) + kSideBytes; }
  ASSAY_HOST_DEVICE static int64_t v_scales(int32_t head_dim) { return k_scales(head_dim) + 2 * kSideBytes; }
  ASSAY_HOST_DEVICE static int64_t rho(int32_t head_dim) { return k_scales(head_dim) + 3 * kSideBytes; }
};

// Inside one witcert record: byte offsets. V payload as in a certified one.
struct WitcertRecord {
  ASSAY_HOST_DEVICE static int64_t scale_bytes(int32_t head_dim) {
    return int64_t{kTileTokens} * 2 * (head_dim < 32 ? 1 : head_dim / 32);
  }
  ASSAY_HOST_DEVICE static int64_t bytes(int32_t head_dim, int32_t bypass_count, DType dtype) {
    return bypass(head_dim) + int64_t{kTileTokens} * bypass_count * static_cast<int64_t>(dtype_bytes(dtype));
  }
  ASSAY_HOST_DEVICE static int64_t k_scales(int32_t head_dim) { return int64_t{2} * kTileTokens * head_dim; }
  ASSAY_HOST_DEVICE static int64_t v_scales(int32_t head_dim) { return k_scales(head_dim) + scale_bytes(head_dim); }
  ASSAY_HOST_DEVICE static int64_t bypass(int32_t head_dim) { return k_scales(head_dim) + 2 * scale_bytes(head_dim); }
};

}  // namespace assay
