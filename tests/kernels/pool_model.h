// Sequences over a compressed pool, with everything in float64 beside it: what is stored, what it means, what is exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "tests/certify/exact_rows.h"
#include "tests/kernels/random_data.h"

namespace assay {

struct PoolCase {
  int32_t kv_heads, group, dim, page_tokens;
  DType dtype;
  bool balance = true, rotation = true;
};

// One token of one head: served and exact row in the model's channels, and what the meter may use.
struct StoredRow {
  std::vector<double> key, value;              // as decoded, transformed domain
  std::vector<double> exact_key, exact_value;  // the model's row in the pool's dtype
  double witness = 0, rho = 0;
};

class PoolModel {
 public:
  PoolModel(const PoolCase& c, const std::vector<int32_t>& lengths) : shape{c.kv_heads * c.group, c.kv_heads, c.dim} {
    for (int32_t length : lengths) stride_ = std::max(stride_, (length + c.page_tokens - 1) / c.page_tokens);
    const int32_t num_pages = stride_ * static_cast<int32_t>(lengths.size());
    cache.format = KvFormat::kCertified;
    cache.dtype = c.dtype;
    cache.num_layers = 2;
    cache.num_pages = num_pages;
    cache.page_tokens = c.page_tokens;
    cache.num_kv_heads = c.kv_heads;
    cache.head_dim = c.dim;
    cache.record_bytes = CertifiedRecord::bytes(c.dim);
    memory_.assign(static_cast<size_t>(2 * num_pages * cache.page_layer_bytes()), std::byte{0xff});
    cache.base = memory_.data();
    norms_.assign(static_cast<size_t>(2 * c.kv_heads * num_pages), uint16_t{0xffff});
    cache.tables.value_norms = norms_.data();
    signs_ = kv::testing::signs_of(c.dim);
    if (c.rotation) cache.tables.signs = signs_.data();
    kv::testing::RowSource source(7, c.dim);
    for (int32_t i = 0; i < 2 * c.kv_heads; ++i) {
      const kv::testing::Row row = source.balance();
      for (float value : row) lambda_.push_back(std::pow(value, 0.25f));
    }
    if (c.balance) cache.tables.lambda = lambda_.data();
    table_.resize(static_cast<size_t>(num_pages));
    std::iota(table_.rbegin(), table_.rend(), 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
      qkv.push_back(
          random_floats(static_cast<size_t>(lengths[s] * shape.qkv_columns()), static_cast<uint32_t>(10 + s)));
    }
  }

  struct Slice {
    int32_t sequence, first, count;
  };
  struct Result {
    std::vector<float> out;            // [rows][heads x dim]
    std::vector<kv::MeterCell> cells;  // [rows][heads]
  };

  // Attention over the slices, every row metered, then their rows are written.
  Result run(Ops& ops, const std::vector<Slice>& slices) {
    std::vector<int32_t> positions, owners, first_row = {0}, table;
    std::vector<float> rows;
    const int32_t cols = shape.qkv_columns();
    for (size_t s = 0; s < slices.size(); ++s) {
      for (int32_t p = slices[s].first; p < slices[s].first + slices[s].count; ++p) {
        positions.push_back(p);
        owners.push_back(static_cast<int32_t>(s));
        const float* row = qkv[static_cast<size_t>(slices[s].sequence)].data() + p * cols;
        rows.insert(rows.end(), row, row + cols);
      }
      first_row.push_back(static_cast<int32_t>(positions.size()));
      const auto pages = table_.begin() + slices[s].sequence * stride_;
      table.insert(table.end(), pages, pages + stride_);
    }
    const int32_t tokens = static_cast<int32_t>(positions.size()), out_cols = shape.num_heads * shape.head_dim;
    BatchView batch;
    batch.num_tokens = tokens;
    batch.num_sequences = static_cast<int32_t>(slices.size());
    batch.positions = positions.data();
    batch.sequences = owners.data();
    batch.first_row = first_row.data();
    batch.page_table = table.data();
    batch.page_table_stride = stride_;
    batch.max_context = 1 << 20;
    Result result;
    result.out.resize(static_cast<size_t>(tokens * out_cols));
    result.cells.resize(static_cast<size_t>(tokens * shape.num_heads));
    std::vector<int32_t> index(static_cast<size_t>(tokens));
    std::iota(index.begin(), index.end(), 0);
    kv::MeterView meter;
    meter.num_metered = tokens;
    meter.num_heads = shape.num_heads;
    meter.cell_of_row = index.data();
    meter.cells = result.cells.data();
    ops.attention(1, batch, shape, view_of(rows, tokens, cols), cache, meter, view_of(result.out, tokens, out_cols));
    ops.kv_write(1, batch, shape, view_of(rows, tokens, cols), cache);
    return result;
  }

  // Balance of every KV head, [KV head][dim].
  void set_balance(const std::vector<float>& lambda) {
    std::copy(lambda.begin(), lambda.end(), lambda_.begin() + static_cast<int64_t>(lambda.size()));
    cache.tables.lambda = lambda_.data();
  }

  const float* query(int32_t sequence, int32_t position, int32_t head) const { return at(sequence, position, head); }
  int32_t kv_head(int32_t head) const { return head / (shape.num_heads / shape.num_kv_heads); }

  // A token as the pool holds it.
  StoredRow stored(int32_t sequence, int32_t position, int32_t h) const {
    const int32_t d = shape.head_dim, token = position % kTileTokens, side = kv::value_side_index(token);
    const std::byte* record = cache.record_of(1, table_.data() + sequence * stride_, h, position);
    const uint8_t* k = reinterpret_cast<const uint8_t*>(record);
    const uint8_t* v = k + CertifiedRecord::v_payload(d);
    const auto half = [&](int64_t offset, int32_t i) {
      return static_cast<double>(kv::half_to_float(reinterpret_cast<const uint16_t*>(record + offset)[i]));
    };
    StoredRow row;
    for (int32_t c = 0; c < d; ++c) {
      row.key.push_back(half(CertifiedRecord::k_scales(d), token) * (k[kv::key_fragment_index(token, c, d)] - 128));
      row.value.push_back(half(CertifiedRecord::v_scales(d), side) * (v[kv::value_fragment_index(token, c, d)] - 128));
      row.exact_key.push_back(in_dtype(at(sequence, position, shape.num_heads + h)[c]));
      row.exact_value.push_back(in_dtype(at(sequence, position, shape.num_heads + shape.num_kv_heads + h)[c]));
    }
    row.witness = half(CertifiedRecord::witness(d), token);
    row.rho = half(CertifiedRecord::rho(d), side);
    return row;
  }

  // R Lambda q in float64.
  std::vector<double> transformed_query(const float* q, int32_t h) const {
    kv::testing::ExactRow x;
    for (int32_t c = 0; c < shape.head_dim; ++c) {
      const float lambda = cache.tables.lambda != nullptr
                               ? lambda_[static_cast<size_t>((shape.num_kv_heads + h) * shape.head_dim + c)]
                               : 1.0f;
      x.push_back(static_cast<long double>(q[c]) * lambda);
    }
    if (cache.tables.signs != nullptr) x = kv::testing::exact_rotation(signs_, x);
    return {x.begin(), x.end()};
  }
  std::vector<double> rotated_back(const std::vector<double>& y) const {
    if (cache.tables.signs == nullptr) return y;
    const kv::testing::ExactRow x = kv::testing::exact_rotation_back(signs_, {y.begin(), y.end()});
    return {x.begin(), x.end()};
  }

  AttentionShape shape;
  PagedKvView cache;
  std::vector<std::vector<float>> qkv;

 private:
  const float* at(int32_t sequence, int32_t position, int32_t head) const {
    return qkv[static_cast<size_t>(sequence)].data() + position * shape.qkv_columns() + head * shape.head_dim;
  }
  double in_dtype(float value) const {
    if (cache.dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
    return cache.dtype == DType::kF16 ? f16_to_f32(f32_to_f16(value)) : value;
  }

  int32_t stride_ = 0;
  std::vector<std::byte> memory_;
  std::vector<uint16_t> norms_;
  std::vector<int32_t> table_;
  kv::testing::Row signs_, lambda_;
};

// One cell in float64: `stored` tokens from the pool, the rest of the row's context from qkv.
struct CellTruth {
  std::vector<double> out;  // over served rows
  double tv = 0;            // against exact rows
  double output_error = 0;  // |y - y^|
  kv::MeterSums<double> sums;
  double largest_value = 0;  // |v| of stored exact rows
};

inline CellTruth truth_of(const PoolModel& m, int32_t sequence, int32_t position, int32_t head, int32_t stored) {
  const int32_t d = m.shape.head_dim, h = m.kv_head(head);
  const float* q = m.query(sequence, position, head);
  const std::vector<double> q_pool = m.transformed_query(q, h);
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  double q_norm = 0;
  for (double x : q_pool) q_norm += x * x;
  CellTruth truth;
  std::vector<double> served, exact;
  std::vector<StoredRow> rows;
  for (int32_t t = 0; t <= position; ++t) {
    StoredRow row;
    if (t < stored) {
      row = m.stored(sequence, t, h);
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
      if (t < stored) b += q_pool[i] * row.key[i];
      norm += row.exact_value[i] * row.exact_value[i];
    }
    if (t < stored) truth.largest_value = std::max(truth.largest_value, std::sqrt(norm));
    exact.push_back(a * scale);
    served.push_back(t < stored ? b * scale : a * scale);
    kv::add_token(truth.sums, served.back(), scale * std::sqrt(q_norm) * row.witness, row.rho);
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
      if (static_cast<int32_t>(t) < stored)
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
