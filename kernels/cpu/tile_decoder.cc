#include "kernels/cpu/tile_decoder.h"

#include <algorithm>

#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"

namespace assay {
namespace {

uint16_t half_at(const std::byte* array, int32_t index) {
  return reinterpret_cast<const uint16_t*>(array)[index];
}

void put_key(const AttentionBlock& a, int32_t token, const float* row) {
  for (int32_t c = 0; c < a.head_dim; ++c) a.k_tile[c * kTileTokens + token] = row[c];
}

void decode_certified_token(const PoolBlock& b, const std::byte* record, int32_t token) {
  const AttentionBlock& a = b.stored;
  const int32_t d = a.head_dim;
  const uint8_t* k = reinterpret_cast<const uint8_t*>(record);
  const uint8_t* v = k + CertifiedRecord::v_payload(d);
  const int32_t side = kv::value_side_index(token);
  const float k_scale = kv::half_to_float(half_at(record + CertifiedRecord::k_scales(d), token));
  const float v_scale = kv::half_to_float(half_at(record + CertifiedRecord::v_scales(d), side));
  float row[kv::kMaxHeadDim];
  for (int32_t c = 0; c < d; ++c) {
    row[c] = kv::dequantise(kv::level_from_biased(k[kv::key_fragment_index(token, c, d)]), k_scale, 0.0f);
    const int8_t level = kv::level_from_biased(v[kv::value_fragment_index(token, c, d)]);
    a.v_tile[token * a.dim_stride + c] = kv::dequantise(level, v_scale, 0.0f);
  }
  put_key(a, token, row);
  b.side.witness[token] = kv::half_to_float(half_at(record + CertifiedRecord::witness(d), token));
  b.side.rho[token] = kv::half_to_float(half_at(record + CertifiedRecord::rho(d), side));
}

}  // namespace

void decode_tile(const PoolBlock& b, int32_t tile) {
  const AttentionBlock& a = b.stored;
  const int32_t count = std::min(kTileTokens, b.stored_tokens - tile * kTileTokens);
  const std::byte* record = a.cache->record_of(a.layer, a.pages, a.kv_head, tile * kTileTokens);
  if (count < kTileTokens) {
    std::fill_n(a.k_tile, a.dim_stride * kTileTokens, 0.0f);
    std::fill_n(a.v_tile, a.dim_stride * kTileTokens, 0.0f);
    std::fill_n(b.side.witness, kTileTokens, 0.0f);
    std::fill_n(b.side.rho, kTileTokens, 0.0f);
  }
  for (int32_t token = 0; token < count; ++token) decode_certified_token(b, record, token);
}

}  // namespace assay
