#include "kernels/cpu/tile_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/pool_problem.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "kernels/kv/observed_record.h"

namespace assay {
namespace {

constexpr int32_t kMostGroups = kv::kMaxHeadDim / kv::kGroupChannels;

uint16_t half_at(const std::byte* array, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, array + 2 * index, sizeof bits);
  return bits;
}

// One token as decoded, with what its radii need.
struct Token {
  float key[kv::kMaxHeadDim], value[kv::kMaxHeadDim];
  uint16_t witness[16];            // [bands]
  float scales[kMostGroups];       // of K; 0 where exact-only
  float dither_norm = 0, rho = 0;  // dither_norm: +infinity where exact-only
};

void decode_payloads(const PoolBlock& b, const std::byte* record, int32_t token, const float* xi, Token& to) {
  const int32_t d = b.stored.head_dim;
  const uint8_t* k = reinterpret_cast<const uint8_t*>(record);
  const uint8_t* v = k + CertifiedRecord::v_payload(d);
  for (int32_t c = 0; c < d; ++c) {
    to.key[c] = static_cast<float>(kv::level_from_biased(k[kv::key_fragment_index(token, c, d)])) - xi[c];
    to.value[c] = static_cast<float>(kv::level_from_biased(v[kv::value_fragment_index(token, c, d)]));
  }
}

void decode_certified(const PoolBlock& b, const std::byte* record, int32_t position, Token& to) {
  const int32_t d = b.stored.head_dim, token = position % kTileTokens, side = kv::value_side_index(token);
  float xi[kv::kMaxHeadDim];
  pool_dither_row(*b.stored.cache, b.stored.layer, b.stored.kv_head, position, xi);
  decode_payloads(b, record, token, xi, to);
  to.scales[0] = kv::half_to_float(half_at(record + CertifiedRecord::k_scales(d), token));
  const float v_scale = kv::half_to_float(half_at(record + CertifiedRecord::v_scales(d), side));
  for (int32_t c = 0; c < d; ++c) {
    to.key[c] *= to.scales[0];
    to.value[c] *= v_scale;
  }
  to.witness[0] = half_at(record + CertifiedRecord::witness(d), token);
  const bool exact_only = to.witness[0] == kv::kHalfInfinity;
  to.dither_norm = exact_only ? kv::infinity() : std::sqrt(static_cast<float>(d)) * to.scales[0];
  to.rho = kv::half_to_float(half_at(record + CertifiedRecord::rho(d), side));
}

// Finite scales of groups; infinite ones become 0. Returns the norm of the steps, infinite where one of them was.
float read_scales(const std::byte* from, int32_t at, int32_t groups, int32_t size, float* scales) {
  float sum = 0;
  for (int32_t g = 0; g < groups; ++g) {
    scales[g] = kv::half_to_float(half_at(from, g * kTileTokens + at));
    sum += static_cast<float>(size) * scales[g] * scales[g];
    if (!kv::is_finite(scales[g])) scales[g] = 0;
  }
  return std::sqrt(sum);
}

void decode_witcert(const PoolBlock& b, const std::byte* record, int32_t position, Token& to) {
  const int32_t d = b.stored.head_dim, token = position % kTileTokens, size = kv::group_channels(d);
  const PagedKvView& cache = *b.stored.cache;
  float xi[kv::kMaxHeadDim], v_scales[kMostGroups];
  pool_dither_row(cache, b.stored.layer, b.stored.kv_head, position, xi);
  decode_payloads(b, record, token, xi, to);
  to.dither_norm = read_scales(record + WitcertRecord::k_scales(d), token, b.groups, size, to.scales);
  const float v_norm =
      read_scales(record + WitcertRecord::v_scales(d), kv::value_side_index(token), b.groups, size, v_scales);
  to.rho = 0.5f * v_norm * (1.0f + 0x1p-15f);  // as kv::group_value_radius
  for (int32_t c = 0; c < d; ++c) {
    to.key[c] *= to.scales[c / size];
    to.value[c] *= v_scales[c / size];
  }
  const kv::RowTransform t = cache.transform(b.stored.layer, b.stored.kv_head);
  with_elements(cache.dtype, record + WitcertRecord::bypass(d), [&](const auto* elements) {
    for (int32_t i = 0; i < t.bypass_count; ++i) {
      to.key[t.bypass[i]] = element_to_f32(elements[i * kTileTokens + token]);
    }
  });
}

// The pair's dither radius; as FragmentStep::dither_radius.
float dither_radius(const PoolBlock& b, int32_t pair, const Token& token) {
  float variance = 0, radius = b.terms.dither_norm[pair] * token.dither_norm;
  for (int32_t g = 0; g < b.groups; ++g) {
    variance += b.terms.dither_variance[pair * b.groups + g] * token.scales[g] * token.scales[g];
    radius += b.terms.dither_bias[pair * b.groups + g] * token.scales[g];
  }
  float bypassed = 0;
  const kv::RowTransform t = b.stored.cache->transform(b.stored.layer, b.stored.kv_head);
  for (int32_t i = 0; i < t.bypass_count; ++i) {
    bypassed += std::abs(b.terms.bypass_query[pair * t.bypass_count + i] * token.key[t.bypass[i]]);
  }
  return radius + std::sqrt(variance) + kv::bypass_radius(1.0f, bypassed, b.stored.head_dim);
}

void store_token(const PoolBlock& b, int32_t at, const Token& token) {
  const AttentionBlock& a = b.stored;
  for (int32_t c = 0; c < a.head_dim; ++c) a.k_tile[c * kTileTokens + at] = token.key[c];
  std::copy_n(token.value, a.head_dim, a.v_tile + at * a.dim_stride);
  b.side.rho[at] = token.rho;
  for (int32_t pair = 0; pair < a.pairs; ++pair) {
    float* radii = b.tile_radii + pair * 2 * kTileTokens + at;
    const float* factor = b.terms.factor + pair * b.bands;
    float witness = 0, dither = 0;
    for (int32_t i = 0; i < b.bands; ++i) witness += factor[i] * kv::half_to_float(token.witness[i]);
    if (b.dithered()) dither = dither_radius(b, pair, token);
    radii[0] = b.radius == kv::RadiusKind::kDither ? dither : witness;
    radii[kTileTokens] = std::min(witness, dither);
  }
}

// All tokens of the record at once: a scheme decodes whole tiles.
void decode_observed(const PoolBlock& b, const std::byte* record, int32_t tile, int32_t count) {
  const AttentionBlock& a = b.stored;
  const kv::ObservedScheme& scheme = *a.cache->tables.scheme;
  const int32_t d = a.head_dim, tokens = scheme.tile_tokens, first = tile * kTileTokens % tokens;
  const ObservedRecord at = ObservedRecord::make(scheme, d, a.cache->dtype);
  std::vector<float> keys(static_cast<size_t>(tokens * d)), values(keys.size());
  const int32_t position = tile * kTileTokens - first;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(record);
  scheme.decode(observed_tile(*a.cache, a.layer, a.kv_head, kv::KvSide::kKey, position), bytes, keys.data());
  scheme.decode(observed_tile(*a.cache, a.layer, a.kv_head, kv::KvSide::kValue, position), bytes + at.key_bytes,
                values.data());
  Token token;
  for (int32_t t = 0; t < count; ++t) {
    std::copy_n(keys.data() + (first + t) * d, d, token.key);
    std::copy_n(values.data() + (first + t) * d, d, token.value);
    std::memcpy(token.witness, record + at.witness() + (first + t) * at.bands * 2, static_cast<size_t>(at.bands) * 2);
    token.rho = kv::half_to_float(half_at(record + at.rho(), first + t));
    store_token(b, t, token);
  }
}

}  // namespace

void decode_tile(const PoolBlock& b, int32_t tile) {
  const AttentionBlock& a = b.stored;
  const int32_t count = std::min(kTileTokens, b.stored_tokens - tile * kTileTokens);
  const std::byte* record = b.record(tile);
  if (count < kTileTokens) {
    std::fill_n(a.k_tile, a.dim_stride * kTileTokens, 0.0f);
    std::fill_n(a.v_tile, a.dim_stride * kTileTokens, 0.0f);
    std::fill_n(b.side.rho, kTileTokens, 0.0f);
    std::fill_n(b.tile_radii, int64_t{a.pairs} * 2 * kTileTokens, 0.0f);
  }
  if (a.cache->format == KvFormat::kObserved) return decode_observed(b, record, tile, count);
  for (int32_t t = 0; t < count; ++t) {
    Token token;
    token.witness[0] = 0;
    if (a.cache->format == KvFormat::kCertified)
      decode_certified(b, record, tile * kTileTokens + t, token);
    else
      decode_witcert(b, record, tile * kTileTokens + t, token);
    store_token(b, t, token);
  }
}

}  // namespace assay
