#include "kernels/cpu/pool_write.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pool_problem.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "kernels/kv/observed_record.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool_write.cc"
// clang-format off: foreach_target.h comes first
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rotate-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

void TransformKeyKernel(const kv::RowTransform& t, const float* row, float* out) {
  transform_row(t, RowRole::kKey, row, out);
}
void TransformValueKernel(const kv::RowTransform& t, const float* row, float* out) {
  transform_row(t, RowRole::kValue, row, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(TransformKeyKernel);
HWY_EXPORT(TransformValueKernel);

void round_to_dtype(const float* row, int32_t count, DType dtype, float* out) {
  for (int32_t c = 0; c < count; ++c) {
    if (dtype == DType::kF32) out[c] = row[c];
    if (dtype == DType::kBF16) out[c] = bf16_to_f32(f32_to_bf16(row[c]));
    if (dtype == DType::kF16) out[c] = f16_to_f32(f32_to_f16(std::clamp(row[c], -kMaxF16, kMaxF16)));
  }
}

namespace {

// Consecutive rows of the batch that lie in one page.
struct PageRows {
  int32_t sequence, first_row, rows;
};

std::vector<PageRows> rows_by_page(const BatchView& batch, int32_t page_tokens) {
  std::vector<PageRows> pieces;
  for (int32_t s = 0; s < batch.num_sequences; ++s) {
    for (int32_t row = batch.first_row[s]; row < batch.first_row[s + 1];) {
      const int32_t left = page_tokens - batch.positions[row] % page_tokens;
      const int32_t rows = std::min(left, batch.first_row[s + 1] - row);
      pieces.push_back({s, row, rows});
      row += rows;
    }
  }
  return pieces;
}

// A lower bound of |v| in fp16. NaN and what is too large count as the largest number.
uint16_t norm_down(const float* v, int32_t count) {
  double sum = 0.0;
  for (int32_t c = 0; c < count; ++c) sum += static_cast<double>(v[c]) * v[c];
  const double norm = std::sqrt(sum) * (1.0 - 0x1p-30);
  return norm < kv::kHalfMax ? kv::half_down(static_cast<float>(norm) * (1.0f - 0x1p-22f)) : kv::kHalfMaxFinite;
}

void put_half(std::byte* array, int64_t index, uint16_t bits) {
  std::memcpy(array + 2 * index, &bits, sizeof bits);
}

// What the rows of one (layer, KV head) are written with.
struct Writer {
  const PagedKvView& cache;
  int32_t layer, kv_head;
  kv::RowTransform transform;
  kv::ArithmeticMargins margins;
};

void put_payloads(const int8_t* key, const int8_t* value, int32_t token, int32_t d, std::byte* record) {
  uint8_t* payload = reinterpret_cast<uint8_t*>(record);
  for (int32_t c = 0; c < d; ++c) payload[kv::key_fragment_index(token, c, d)] = kv::biased_level(key[c]);
  payload += CertifiedRecord::v_payload(d);
  for (int32_t c = 0; c < d; ++c) payload[kv::value_fragment_index(token, c, d)] = kv::biased_level(value[c]);
}

void write_certified(const Writer& w, const float* k, const float* v, int32_t position, std::byte* record) {
  const int32_t d = w.cache.head_dim, token = position % kTileTokens;
  const bool dithered = w.cache.tables.dither_stream != DitherStream::kNone;
  float row[kv::kMaxHeadDim], xi[kv::kMaxHeadDim];
  int8_t keys[kv::kMaxHeadDim], values[kv::kMaxHeadDim];
  if (dithered) pool_dither_row(w.cache, w.layer, w.kv_head, position, xi);
  HWY_DYNAMIC_DISPATCH(TransformKeyKernel)(w.transform, k, row);
  const kv::CertifiedSide key = kv::encode_certified_key(row, d, dithered ? xi : nullptr, w.margins, keys);
  HWY_DYNAMIC_DISPATCH(TransformValueKernel)(w.transform, v, row);
  const kv::CertifiedSide value = kv::encode_certified_value(row, d, w.margins, values);
  put_payloads(keys, values, token, d, record);
  put_half(record + CertifiedRecord::k_scales(d), token, key.scale);
  put_half(record + CertifiedRecord::witness(d), token, key.bound);
  put_half(record + CertifiedRecord::v_scales(d), kv::value_side_index(token), value.scale);
  put_half(record + CertifiedRecord::rho(d), kv::value_side_index(token), value.bound);
}

void put_element(std::byte* to, DType dtype, float value) {
  if (dtype == DType::kF32) std::memcpy(to, &value, sizeof value);
  if (dtype == DType::kBF16) put_half(to, 0, f32_to_bf16(value));
  if (dtype == DType::kF16) put_half(to, 0, f32_to_f16(value));
}

void write_witcert(const Writer& w, const float* k, const float* v, int32_t position, std::byte* record) {
  const int32_t d = w.cache.head_dim, token = position % kTileTokens, groups = kv::group_count(d);
  float row[kv::kMaxHeadDim], xi[kv::kMaxHeadDim];
  int8_t keys[kv::kMaxHeadDim] = {}, values[kv::kMaxHeadDim] = {};
  uint16_t key_scales[kv::kMaxHeadDim / 16], value_scales[kv::kMaxHeadDim / 16];
  pool_dither_row(w.cache, w.layer, w.kv_head, position, xi);
  HWY_DYNAMIC_DISPATCH(TransformKeyKernel)(w.transform, k, row);
  kv::encode_groups(row, d, xi, keys, key_scales);
  kv::encode_groups(v, d, nullptr, values, value_scales);
  put_payloads(keys, values, token, d, record);
  for (int32_t g = 0; g < groups; ++g) {
    put_half(record + WitcertRecord::k_scales(d), g * kTileTokens + token, key_scales[g]);
    put_half(record + WitcertRecord::v_scales(d), g * kTileTokens + kv::value_side_index(token), value_scales[g]);
  }
  const int64_t element = static_cast<int64_t>(dtype_bytes(w.cache.dtype));
  for (int32_t i = 0; i < w.transform.bypass_count; ++i) {
    put_element(record + WitcertRecord::bypass(d) + (i * kTileTokens + token) * element, w.cache.dtype,
                k[w.transform.bypass[i]]);
  }
}

// Encodes k, v [tokens][head_dim] from `position` on: a whole tile, or one token of a scheme that takes each alone.
void write_observed(const Writer& w, const float* k, const float* v, int32_t position, int32_t tokens,
                    std::byte* record) {
  const kv::ObservedScheme& scheme = *w.cache.tables.scheme;
  const int32_t d = w.cache.head_dim;
  const ObservedRecord at = ObservedRecord::make(scheme, d, w.cache.dtype);
  const int32_t first = position % at.tokens;
  std::vector<float> decoded(static_cast<size_t>(tokens * d));
  for (const kv::KvSide side : {kv::KvSide::kKey, kv::KvSide::kValue}) {
    const bool is_key = side == kv::KvSide::kKey;
    const float* rows = is_key ? k : v;
    kv::TileContext tile = observed_tile(w.cache, w.layer, w.kv_head, side, position);
    tile.tokens = tokens;
    uint8_t* out = reinterpret_cast<uint8_t*>(record + (is_key ? 0 : at.key_bytes)) +
                   (is_key ? at.key_bytes : at.value_bytes) / at.tokens * first;
    scheme.encode(tile, rows, out);
    scheme.decode(tile, out, decoded.data());
    for (int32_t t = 0; t < tokens; ++t) {
      const float *exact = rows + t * d, *served = decoded.data() + t * d;
      uint16_t witness[16];
      if (is_key) {
        kv::band_witness(exact, served, d, w.margins, witness);
        std::memcpy(record + at.witness() + (first + t) * at.bands * 2, witness, static_cast<size_t>(at.bands) * 2);
      } else {
        put_half(record + at.rho(), first + t, kv::value_row_bound(exact, served, d));
      }
    }
  }
}

// One row, into its record.
void write_row(const Writer& w, const float* k, const float* v, int32_t position, std::byte* record) {
  if (w.cache.format == KvFormat::kCertified) return write_certified(w, k, v, position, record);
  if (w.cache.format == KvFormat::kWitcert) return write_witcert(w, k, v, position, record);
  write_observed(w, k, v, position, 1, record);
}

// One row, into the exact page's K and V.
void write_exact(const PagedKvView& cache, const float* k, const float* v, int32_t position, std::byte* page) {
  const int64_t element = static_cast<int64_t>(dtype_bytes(cache.dtype)), row = element * cache.head_dim;
  std::byte* to = page + position % cache.page_tokens * row;
  for (int32_t c = 0; c < cache.head_dim; ++c) {
    put_element(to + c * element, cache.dtype, k[c]);
    put_element(to + cache.page_tokens * row + c * element, cache.dtype, v[c]);
  }
}

// Rows of one page, as floats rounded to the pool's dtype: k, v [page_tokens][head_dim].
struct PageBuffer {
  std::vector<float> k, v;
};

// Takes back the rows [0, count) of a page that was filling.
void read_exact(const PagedKvView& cache, const std::byte* page, int32_t count, PageBuffer& to) {
  const int64_t elements = int64_t{cache.page_tokens} * cache.head_dim;
  with_elements(cache.dtype, page, [&](const auto* rows) {
    for (int64_t i = 0; i < int64_t{count} * cache.head_dim; ++i) {
      to.k[static_cast<size_t>(i)] = element_to_f32(rows[i]);
      to.v[static_cast<size_t>(i)] = element_to_f32(rows[elements + i]);
    }
  });
}

// The rows of a piece, in the pool's dtype.
class PieceRows {
 public:
  PieceRows(const BatchView& batch, const AttentionShape& shape, ConstTensor qkv, const PagedKvView& cache,
            int32_t kv_head)
      : batch_(batch), qkv_(qkv), cache_(cache), key_(shape.num_heads + kv_head), kv_heads_(shape.num_kv_heads) {}

  void read(int32_t row, float* k, float* v) const {
    const int32_t dim = cache_.head_dim;
    const float* key = qkv_.f32() + row * qkv_.row_stride + key_ * dim;
    round_to_dtype(key, dim, cache_.dtype, k);
    round_to_dtype(key + kv_heads_ * dim, dim, cache_.dtype, v);
  }
  int32_t position(int32_t row) const { return batch_.positions[row]; }

 private:
  const BatchView& batch_;
  ConstTensor qkv_;
  const PagedKvView& cache_;
  int32_t key_, kv_heads_;
};

void keep_norm(const Writer& w, int32_t page, int32_t position, const float* v) {
  uint16_t& largest = w.cache.value_norms(w.layer, w.kv_head)[page];
  largest = std::max(position % w.cache.page_tokens == 0 ? uint16_t{0} : largest, norm_down(v, w.cache.head_dim));
}

// The exact rows in host memory, each under its checksum.
void write_backing(const Writer& w, const PieceRows& rows, const PageRows& piece, int32_t page) {
  const kv::BackingView& backing = w.cache.backing;
  if (!backing.covers(page)) return;
  const int64_t block = backing.block(w.layer, page, w.kv_head);
  float k[kv::kMaxHeadDim], v[kv::kMaxHeadDim];
  for (int32_t row = piece.first_row; row < piece.first_row + piece.rows; ++row) {
    const int32_t token = rows.position(row) % w.cache.page_tokens;
    rows.read(row, k, v);
    write_exact(w.cache, k, v, token, backing.k_row(block, 0));
    backing.checksum(block, token) = kv::row_checksum(backing, block, token);
  }
}

// Rows that are encoded one by one.
void write_rows(const Writer& w, const PieceRows& rows, const PageRows& piece, int32_t page) {
  float k[kv::kMaxHeadDim], v[kv::kMaxHeadDim];
  std::byte* const exact = w.cache.exact_page(w.layer, w.kv_head, page);
  for (int32_t row = piece.first_row; row < piece.first_row + piece.rows; ++row) {
    const int32_t position = rows.position(row);
    rows.read(row, k, v);
    const int32_t tile = position % w.cache.page_tokens / kTileTokens;
    write_row(w, k, v, position, w.cache.record(w.layer, page, w.kv_head, tile));
    if (exact != nullptr) write_exact(w.cache, k, v, position, exact);
    keep_norm(w, page, position, v);
  }
}

// Rows of a page that is encoded when it is whole; until then it lies in its exact slot.
void write_filling_page(const Writer& w, const PieceRows& rows, const PageRows& piece, int32_t page,
                        PageBuffer& buffer) {
  const PagedKvView& cache = w.cache;
  const int32_t dim = cache.head_dim, first = rows.position(piece.first_row) % cache.page_tokens;
  const bool whole = first + piece.rows == cache.page_tokens;
  std::byte* const exact = cache.exact_page(w.layer, w.kv_head, page);
  if (exact == nullptr && !(whole && first == 0)) std::abort();  // the caller gives such pages a slot
  if (whole && first > 0) read_exact(cache, exact, first, buffer);
  for (int32_t i = 0; i < piece.rows; ++i) {
    float *k = buffer.k.data() + (first + i) * dim, *v = buffer.v.data() + (first + i) * dim;
    rows.read(piece.first_row + i, k, v);
    keep_norm(w, page, first + i, v);
    if (!whole) write_exact(cache, k, v, first + i, exact);
  }
  if (!whole) return;
  const int32_t start = rows.position(piece.first_row) - first;
  for (int32_t t = 0; t < cache.page_tokens; t += cache.record_tokens) {
    write_observed(w, buffer.k.data() + t * dim, buffer.v.data() + t * dim, start + t, cache.record_tokens,
                   cache.record(w.layer, page, w.kv_head, t / kTileTokens));
  }
}

Writer make_writer(const PagedKvView& cache, int32_t layer, int32_t head) {
  const kv::RowTransform t = cache.transform(layer, head);
  const bool observed = cache.format == KvFormat::kObserved;
  return {cache, layer, head, t, observed ? kv::plain_margins(t.head_dim) : kv::transform_margins(t)};
}

// A whole page of one (layer, KV head) from its backing rows. Returns how many did not read back.
int64_t restore_page(const Writer& w, const PageToRestore& page, PageBuffer& buffer) {
  const PagedKvView& cache = w.cache;
  const int64_t block = cache.backing.block(w.layer, page.page, w.kv_head);
  int64_t failures = 0;
  for (int32_t t = 0; t < cache.page_tokens; ++t) failures += !kv::row_is_intact(cache.backing, block, t);
  if (failures > 0) return failures;
  read_exact(cache, cache.backing.k_row(block, 0), cache.page_tokens, buffer);
  const int32_t dim = cache.head_dim;
  for (int32_t t = 0; t < cache.page_tokens; ++t) keep_norm(w, page.page, t, buffer.v.data() + t * dim);
  const int32_t step = cache.record_tokens == kTileTokens ? 1 : cache.record_tokens;
  for (int32_t t = 0; t < cache.page_tokens; t += step) {
    std::byte* record = cache.record(w.layer, page.page, w.kv_head, t / kTileTokens);
    const float *k = buffer.k.data() + t * dim, *v = buffer.v.data() + t * dim;
    if (step == 1)
      write_row(w, k, v, page.first_position + t, record);
    else
      write_observed(w, k, v, page.first_position + t, step, record);
  }
  return 0;
}

}  // namespace

int64_t cpu_pool_restore(ThreadPool& pool, std::span<const PageToRestore> pages, const PagedKvView& cache) {
  const int64_t heads = int64_t{cache.num_layers} * cache.num_kv_heads;
  std::atomic<int64_t> failures = 0;
  pool.parallel_for(static_cast<int64_t>(pages.size()) * heads, [&](int64_t task, int) {
    const auto head = static_cast<int32_t>(task % heads);
    const size_t floats = static_cast<size_t>(cache.page_tokens * cache.head_dim);
    PageBuffer buffer{std::vector<float>(floats), std::vector<float>(floats)};
    const Writer writer = make_writer(cache, head / cache.num_kv_heads, head % cache.num_kv_heads);
    failures += restore_page(writer, pages[static_cast<size_t>(task / heads)], buffer);
  });
  return failures;
}

void cpu_pool_write(ThreadPool& pool, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                    ConstTensor qkv, const PagedKvView& cache) {
  const std::vector<PageRows> pieces = rows_by_page(batch, cache.page_tokens);
  const int32_t heads = shape.num_kv_heads;
  const auto writer = [&](int32_t head) { return make_writer(cache, layer, head); };
  const auto page_of = [&](const PageRows& piece) {
    return batch.pages_of(piece.sequence)[batch.positions[piece.first_row] / cache.page_tokens];
  };
  if (cache.record_tokens == kTileTokens) {
    pool.parallel_for(static_cast<int64_t>(pieces.size()) * heads, [&](int64_t task, int) {
      const PageRows& piece = pieces[static_cast<size_t>(task / heads)];
      const int32_t head = static_cast<int32_t>(task % heads);
      const PieceRows rows(batch, shape, qkv, cache, head);
      write_rows(writer(head), rows, piece, page_of(piece));
      write_backing(writer(head), rows, piece, page_of(piece));
    });
    return;
  }
  // In order within a sequence: the page that ends and the one that begins may share their slot.
  pool.parallel_for(int64_t{batch.num_sequences} * heads, [&](int64_t task, int) {
    const int32_t head = static_cast<int32_t>(task % heads);
    const size_t floats = static_cast<size_t>(cache.page_tokens * cache.head_dim);
    PageBuffer buffer{std::vector<float>(floats), std::vector<float>(floats)};
    const PieceRows rows(batch, shape, qkv, cache, head);
    for (const PageRows& piece : pieces) {
      if (piece.sequence != task / heads) continue;
      write_filling_page(writer(head), rows, piece, page_of(piece), buffer);
      write_backing(writer(head), rows, piece, page_of(piece));
    }
  });
}

}  // namespace assay
#endif  // HWY_ONCE
