// What attention over a compressed pool should serve, sum and bound, in float64.
#pragma once

#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "kernels/kv/observed_record.h"
#include "tests/kernels/pool_model.h"

namespace assay {

// One token of one head: served and exact row, and what the meter may use.
struct StoredRow {
  bool compressed = false;
  std::vector<double> key, value;              // as decoded, in the pool's domain, bypassed channels included
  std::vector<double> exact_key, exact_value;  // the model's row in the pool's dtype
  double witness = 0, rho = 0;
  std::vector<double> bands, scales;  // witness of observed schemes; scales of K
};

namespace detail {

inline double half_in(const std::byte* record, int64_t offset, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, record + offset + 2 * i, sizeof bits);
  return kv::half_to_float(bits);
}

inline std::vector<double> dither_of(const PoolModel& m, int32_t position, int32_t h) {
  std::vector<double> xi(static_cast<size_t>(m.shape.head_dim));
  if (m.cache.tables.dither_stream == DitherStream::kNone) return xi;
  const bool periodic = m.cache.tables.dither_stream == DitherStream::kPeriodic;
  const uint32_t row = static_cast<uint32_t>(periodic ? position % 64 : position);
  for (size_t c = 0; c < xi.size(); ++c) {
    xi[c] = kv::dither_at(kPoolSeed, 1, static_cast<uint32_t>(h), row, static_cast<uint32_t>(c));
  }
  return xi;
}

inline void read_integers(const PoolModel& m, const std::byte* record, int32_t position, int32_t h, StoredRow& row) {
  const int32_t d = m.shape.head_dim, token = position % kTileTokens, side = kv::value_side_index(token);
  const bool certified = m.cache.format == KvFormat::kCertified;
  const int32_t groups = certified ? 1 : kv::group_count(d), size = d / groups;
  const uint8_t* k = reinterpret_cast<const uint8_t*>(record);
  const uint8_t* v = k + CertifiedRecord::v_payload(d);
  const int64_t k_at = certified ? CertifiedRecord::k_scales(d) : WitcertRecord::k_scales(d);
  const int64_t v_at = certified ? CertifiedRecord::v_scales(d) : WitcertRecord::v_scales(d);
  const std::vector<double> xi = dither_of(m, position, h);
  double value_steps = 0;
  for (int32_t g = 0; g < groups; ++g) row.scales.push_back(half_in(record, k_at, g * kTileTokens + token));
  for (int32_t c = 0; c < d; ++c) {
    const double v_scale = half_in(record, v_at, c / size * kTileTokens + side);
    row.key.push_back(row.scales[static_cast<size_t>(c / size)] *
                      (k[kv::key_fragment_index(token, c, d)] - 128 - xi[static_cast<size_t>(c)]));
    row.value.push_back(v_scale * (v[kv::value_fragment_index(token, c, d)] - 128));
    value_steps += v_scale * v_scale;
  }
  row.witness = certified ? half_in(record, CertifiedRecord::witness(d), token) : 0;
  row.rho = certified ? half_in(record, CertifiedRecord::rho(d), side) : std::sqrt(value_steps) / 2;
  const kv::RowTransform t = m.cache.transform(1, h);
  for (int32_t i = 0; i < t.bypass_count; ++i) row.key[t.bypass[i]] = row.exact_key[t.bypass[i]];
}

inline void read_observed(const PoolModel& m, const std::byte* record, int32_t position, int32_t h, StoredRow& row) {
  const kv::ObservedScheme& scheme = *m.cache.tables.scheme;
  const int32_t d = m.shape.head_dim, token = position % scheme.tile_tokens;
  const ObservedRecord at = ObservedRecord::make(scheme, d, m.cache.dtype);
  std::vector<float> rows(static_cast<size_t>(scheme.tile_tokens * d));
  for (const kv::KvSide side : {kv::KvSide::kKey, kv::KvSide::kValue}) {
    const bool is_key = side == kv::KvSide::kKey;
    scheme.decode(observed_tile(m.cache, 1, h, side, position - token),
                  reinterpret_cast<const uint8_t*>(record) + (is_key ? 0 : at.key_bytes), rows.data());
    (is_key ? row.key : row.value).assign(rows.begin() + token * d, rows.begin() + (token + 1) * d);
  }
  for (int32_t b = 0; b < at.bands; ++b) row.bands.push_back(half_in(record, at.witness(), token * at.bands + b));
  row.rho = half_in(record, at.rho(), token);
}

}  // namespace detail

// A token as the pool holds it.
inline StoredRow stored_row(const PoolModel& m, int32_t sequence, int32_t position, int32_t h) {
  const std::byte* record = m.record_of(sequence, position, h);
  StoredRow row;
  row.compressed = true;
  for (int32_t c = 0; c < m.shape.head_dim; ++c) {
    row.exact_key.push_back(m.in_dtype(m.query(sequence, position, m.shape.num_heads + h)[c]));
    row.exact_value.push_back(m.in_dtype(m.query(sequence, position, m.shape.num_heads + m.shape.num_kv_heads + h)[c]));
  }
  if (m.cache.format == KvFormat::kObserved)
    detail::read_observed(m, record, position, h, row);
  else
    detail::read_integers(m, record, position, h, row);
  return row;
}

struct Radii2 {
  double witness = 0, conditional = 0;
};

// Radii without the rounding of the arithmetic: 1 % below what the kernels sum, at most.
inline Radii2 radii_of(const PoolModel& m, const StoredRow& row, const std::vector<double>& q, int32_t h,
                       double scale) {
  const int32_t d = m.shape.head_dim;
  double norm = 0, witness = 0, variance = 0;
  std::vector<double> bands(16);
  const kv::RowTransform t = m.cache.transform(1, h);
  for (int32_t c = 0; c < d; ++c) {
    const double square = q[static_cast<size_t>(c)] * q[static_cast<size_t>(c)];
    norm += square;
    bands[static_cast<size_t>(kv::band_of_channel(c, d))] += square;
    if (row.scales.empty() || std::count(t.bypass, t.bypass + t.bypass_count, c) > 0) continue;
    const double s = row.scales[static_cast<size_t>(c) * row.scales.size() / static_cast<size_t>(d)];
    variance += square * s * s / 12;
  }
  witness = std::sqrt(norm) * row.witness;
  for (size_t b = 0; b < row.bands.size(); ++b) witness += std::sqrt(bands[b]) * row.bands[b];
  const double dither = kTestKappa * std::sqrt(variance);
  if (m.radius == kv::RadiusKind::kWitness) return {scale * witness, scale * witness};
  if (m.radius == kv::RadiusKind::kDither) return {scale * dither, scale * dither};
  return {scale * witness, scale * std::min(witness, dither)};
}

// One cell in float64: `stored` tokens from the pool, the rest of the row's context from qkv.
struct CellTruth {
  std::vector<double> out;  // over served rows
  double tv = 0;            // against exact rows
  double output_error = 0;  // |y - y^|
  kv::MeterSums<double> sums, conditional;
  double largest_value = 0;  // |v| of stored exact rows
};

inline CellTruth truth_of(const PoolModel& m, int32_t sequence, int32_t position, int32_t head, int32_t stored) {
  const int32_t d = m.shape.head_dim, h = m.kv_head(head);
  const float* q = m.query(sequence, position, head);
  const std::vector<double> q_pool = m.transformed_query(q, h);
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  CellTruth truth;
  std::vector<double> served, exact;
  std::vector<StoredRow> rows;
  for (int32_t t = 0; t <= position; ++t) {
    StoredRow row;
    const bool compressed = t < stored && !m.is_exact(sequence, t, h);
    row.compressed = compressed;
    if (compressed) {
      row = stored_row(m, sequence, t, h);
    } else if (t < stored) {
      for (int32_t c = 0; c < d; ++c) {
        row.exact_key.push_back(m.in_dtype(m.query(sequence, t, m.shape.num_heads + h)[c]));
        row.exact_value.push_back(m.in_dtype(m.query(sequence, t, m.shape.num_heads + m.shape.num_kv_heads + h)[c]));
      }
    } else {
      const float* k = m.query(sequence, t, m.shape.num_heads + h);
      const float* v = m.query(sequence, t, m.shape.num_heads + m.shape.num_kv_heads + h);
      row.exact_key.assign(k, k + d);
      row.exact_value.assign(v, v + d);
    }
    double a = 0, b = 0, norm = 0;
    for (int32_t c = 0; c < d; ++c) {
      const size_t i = static_cast<size_t>(c);
      a += q[c] * row.exact_key[i];
      if (compressed) b += q_pool[i] * row.key[i];
      norm += row.exact_value[i] * row.exact_value[i];
    }
    if (t < stored) truth.largest_value = std::max(truth.largest_value, std::sqrt(norm));
    exact.push_back(a * scale);
    served.push_back(compressed ? b * scale : a * scale);
    const Radii2 radii = compressed ? radii_of(m, row, q_pool, h, scale) : Radii2{};
    kv::add_token(truth.sums, served.back(), radii.witness, row.rho);
    kv::add_token(truth.conditional, served.back(), radii.conditional, row.rho);
    rows.push_back(std::move(row));
  }
  const auto softmax = [](std::vector<double> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double total = 0;
    for (double& value : x) total += value = std::exp(value - top);
    for (double& value : x) value /= total;
    return x;
  };
  const std::vector<double> p = softmax(exact), p_served = softmax(served);
  std::vector<double> pool_part(static_cast<size_t>(d)), own_part(pool_part), y(pool_part);
  for (size_t t = 0; t < rows.size(); ++t) {
    truth.tv += std::abs(p[t] - p_served[t]) / 2;
    for (size_t c = 0; c < y.size(); ++c) {
      y[c] += p[t] * rows[t].exact_value[c];
      if (rows[t].compressed)
        pool_part[c] += p_served[t] * rows[t].value[c];
      else
        own_part[c] += p_served[t] * rows[t].exact_value[c];
    }
  }
  truth.out = m.rotated_back(pool_part);
  for (size_t c = 0; c < y.size(); ++c) {
    truth.out[c] += own_part[c];
    truth.output_error += (y[c] - truth.out[c]) * (y[c] - truth.out[c]);
  }
  truth.output_error = std::sqrt(truth.output_error);
  return truth;
}

}  // namespace assay
