#include "kernels/cpu/pool_write.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"

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

void put_half(std::byte* array, int32_t index, uint16_t bits) {
  reinterpret_cast<uint16_t*>(array)[index] = bits;
}

void write_certified(const kv::RowTransform& t, const float* k, const float* v, int32_t token, std::byte* record) {
  const int32_t d = t.head_dim;
  const kv::ArithmeticMargins margins = kv::transform_margins(t);
  float row[kv::kMaxHeadDim];
  int8_t levels[kv::kMaxHeadDim];
  uint8_t* payload = reinterpret_cast<uint8_t*>(record);
  HWY_DYNAMIC_DISPATCH(TransformKeyKernel)(t, k, row);
  const kv::CertifiedSide key = kv::encode_certified_key(row, d, nullptr, margins, levels);
  for (int32_t c = 0; c < d; ++c) payload[kv::key_fragment_index(token, c, d)] = kv::biased_level(levels[c]);
  put_half(record + CertifiedRecord::k_scales(d), token, key.scale);
  put_half(record + CertifiedRecord::witness(d), token, key.bound);
  HWY_DYNAMIC_DISPATCH(TransformValueKernel)(t, v, row);
  const kv::CertifiedSide value = kv::encode_certified_value(row, d, margins, levels);
  payload += CertifiedRecord::v_payload(d);
  for (int32_t c = 0; c < d; ++c) payload[kv::value_fragment_index(token, c, d)] = kv::biased_level(levels[c]);
  put_half(record + CertifiedRecord::v_scales(d), kv::value_side_index(token), value.scale);
  put_half(record + CertifiedRecord::rho(d), kv::value_side_index(token), value.bound);
}

}  // namespace

void cpu_pool_write(ThreadPool& pool, int32_t layer, const BatchView& batch, const AttentionShape& shape,
                    ConstTensor qkv, const PagedKvView& cache) {
  const std::vector<PageRows> pieces = rows_by_page(batch, cache.page_tokens);
  const int32_t dim = shape.head_dim, heads = shape.num_kv_heads;
  pool.parallel_for(static_cast<int64_t>(pieces.size()) * heads, [&](int64_t task, int) {
    const PageRows& piece = pieces[static_cast<size_t>(task / heads)];
    const int32_t h = static_cast<int32_t>(task % heads);
    const int32_t* pages = batch.pages_of(piece.sequence);
    const kv::RowTransform t = cache.transform(layer, h);
    float k[kv::kMaxHeadDim], v[kv::kMaxHeadDim];
    for (int32_t row = piece.first_row; row < piece.first_row + piece.rows; ++row) {
      const int32_t position = batch.positions[row];
      const float* key = qkv.f32() + row * qkv.row_stride + (shape.num_heads + h) * dim;
      round_to_dtype(key, dim, cache.dtype, k);
      round_to_dtype(key + heads * dim, dim, cache.dtype, v);
      write_certified(t, k, v, position % kTileTokens, cache.record_of(layer, pages, h, position));
      uint16_t& largest = cache.value_norms(layer, h)[pages[position / cache.page_tokens]];
      largest = std::max(position % cache.page_tokens == 0 ? uint16_t{0} : largest, norm_down(v, dim));
    }
  });
}

}  // namespace assay
#endif  // HWY_ONCE
