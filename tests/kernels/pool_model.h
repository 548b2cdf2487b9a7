// Sequences over a compressed pool and what the pool needs beside its records. What a cell should be: pool_truth.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "cache/pool/pool_layout.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/certify/exact_rows.h"
#include "tests/kernels/random_data.h"

namespace assay {

struct PoolCase {
  int32_t kv_heads, group, dim, page_tokens;
  DType dtype;
  bool balance = true, rotation = true;
  std::string pool = "certified";
  kv::RadiusKind radius = kv::RadiusKind::kWitness;
  DitherStream stream = DitherStream::kNone;
  int32_t outlier_pairs = 0;

  std::string name() const {
    std::string name = pool + "_kv" + std::to_string(kv_heads) + "g" + std::to_string(group) + "d" +
                       std::to_string(dim) + "p" + std::to_string(page_tokens) + dtype_name(dtype) +
                       (balance ? "" : "NoBalance") + (rotation ? "" : "NoRotation") +
                       (radius == kv::RadiusKind::kWitness ? ""
                        : radius == kv::RadiusKind::kBoth  ? "Both"
                                                           : "Dither") +
                       (stream == DitherStream::kPerSlot ? "PerSlot" : "") +
                       (outlier_pairs > 0 ? "m" + std::to_string(outlier_pairs) : "");
    for (char& c : name) {
      if (c == ':' || c == '-') c = '_';
    }
    return name;
  }
};

constexpr uint64_t kPoolSeed = 20261130;
constexpr float kTestKappa = 7.5f;

class PoolModel {
 public:
  PoolModel(const PoolCase& c, const std::vector<int32_t>& lengths)
      : shape{c.kv_heads * c.group, c.kv_heads, c.dim}, radius(c.radius) {
    for (int32_t length : lengths) stride_ = std::max(stride_, (length + c.page_tokens - 1) / c.page_tokens);
    const int32_t num_pages = stride_ * static_cast<int32_t>(lengths.size());
    const auto layout = make_pool_layout(c.pool, {kLayers, c.kv_heads, c.dim, c.page_tokens, c.dtype},
                                         {.outlier_pairs = c.outlier_pairs});
    if (!layout.ok()) std::abort();
    memory_.assign(static_cast<size_t>(num_pages * layout->bytes_per_page()), std::byte{0xff});
    cache = layout->view(memory_.data(), num_pages);
    norms_.assign(static_cast<size_t>(kLayers * c.kv_heads * num_pages), uint16_t{0xffff});
    cache.tables.value_norms = norms_.data();
    cache.tables.seed = kPoolSeed;
    if (cache.format == KvFormat::kCertified) make_transform(c);
    if (c.outlier_pairs > 0) make_bypass(c);
    cache.tables.dither_stream = c.stream;
    if (c.stream == DitherStream::kPeriodic) make_dither();
    scales_.assign(static_cast<size_t>(kLayers * c.kv_heads), 4.0f / 127);
    cache.tables.key_scale = cache.tables.value_scale = scales_.data();
    slots_.assign(static_cast<size_t>(kLayers * c.kv_heads * num_pages), -1);
    exact_rows_.assign(slots_.size() * static_cast<size_t>(cache.exact_slot_bytes()), std::byte{0xff});
    table_.resize(static_cast<size_t>(num_pages));
    std::iota(table_.rbegin(), table_.rend(), 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
      qkv.push_back(
          random_floats(static_cast<size_t>(lengths[s] * shape.qkv_columns()), static_cast<uint32_t>(10 + s)));
    }
  }

  // The page of `position` gets (or loses) exact rows in one KV head, as a repair cache would fill it.
  void make_exact(int32_t sequence, int32_t position, int32_t h, bool exact = true) {
    const int32_t page = table_[static_cast<size_t>(sequence * stride_ + position / cache.page_tokens)];
    cache.exact = {exact_rows_.data(), slots_.data()};
    const int64_t key = cache.exact_key(1, h, page);
    slots_[static_cast<size_t>(key)] = exact ? static_cast<int32_t>(key) : -1;
    if (!exact) return;
    const int32_t first = position / cache.page_tokens * cache.page_tokens;
    const int32_t length = static_cast<int32_t>(qkv[static_cast<size_t>(sequence)].size()) / shape.qkv_columns();
    for (int32_t t = first; t < std::min(first + cache.page_tokens, length); ++t) {
      for (int32_t side = 0; side < 2; ++side) {
        const float* row = at(sequence, t, shape.num_heads + side * shape.num_kv_heads + h);
        for (int32_t c = 0; c < shape.head_dim; ++c) put_exact(page, h, side, t - first, c, row[c]);
      }
    }
  }
  bool is_exact(int32_t sequence, int32_t position, int32_t h) const {
    return cache.exact_page(1, h, table_[static_cast<size_t>(sequence * stride_ + position / cache.page_tokens)]) !=
           nullptr;
  }

  struct Slice {
    int32_t sequence, first, count;
  };
  struct Result {
    std::vector<float> out;            // [rows][heads x dim]
    std::vector<kv::MeterCell> cells;  // [rows][heads]
    std::vector<kv::SequenceMeter> tallies;  // [slices]
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
    stage_filling(slices);
    Result result;
    result.out.resize(static_cast<size_t>(tokens * out_cols));
    result.cells.resize(static_cast<size_t>(tokens * shape.num_heads));
    std::vector<int32_t> index(static_cast<size_t>(tokens));
    std::iota(index.begin(), index.end(), 0);
    kv::MeterView meter;
    meter.num_metered = tokens;
    meter.num_heads = shape.num_heads;
    meter.radius = radius;
    meter.cell_of_row = index.data();
    meter.cells = result.cells.data();
    std::vector<kv::MeteredRow> metered;
    for (int32_t row = 0; row < tokens; ++row) {
      const bool decode = slices[static_cast<size_t>(owners[row])].count == 1;
      metered.push_back({row, owners[row], positions[row], decode ? kv::Phase::kDecode : kv::Phase::kPrefill});
    }
    const std::vector<kv::MeterThresholds> limits(slices.size(), thresholds);
    result.tallies.resize(slices.size());
    meter.rows = metered.data();
    meter.thresholds = limits.data();
    meter.sequences = result.tallies.data();
    const Tensor out = view_of(result.out, tokens, out_cols);
    ops.attention(1, batch, shape, view_of(rows, tokens, cols), cache, meter, out);
    if (gate.on) ops.gate(1, batch, shape, view_of(rows, tokens, cols), cache, meter, gate, out);
    ops.kv_write(1, batch, shape, view_of(rows, tokens, cols), cache);
    unstage_whole(slices);
    return result;
  }

  // Balance of every KV head, [KV head][dim].
  void set_balance(const std::vector<float>& lambda) {
    std::copy(lambda.begin(), lambda.end(), lambda_.begin() + static_cast<int64_t>(lambda.size()));
    cache.tables.lambda = lambda_.data();
  }

  const float* query(int32_t sequence, int32_t position, int32_t head) const { return at(sequence, position, head); }
  int32_t kv_head(int32_t head) const { return head / (shape.num_heads / shape.num_kv_heads); }

  const std::byte* record_of(int32_t sequence, int32_t position, int32_t h) const {
    return cache.record_of(1, table_.data() + sequence * stride_, h, position);
  }
  double in_dtype(float value) const {
    if (cache.dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
    return cache.dtype == DType::kF16 ? f16_to_f32(f32_to_f16(value)) : value;
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

  // Exact rows of every page beside the pool, and `repair_slots` slots for repaired ones.
  void add_backing(int32_t repair_slots) {
    const int32_t row_bytes = shape.head_dim * static_cast<int32_t>(dtype_bytes(cache.dtype));
    const size_t blocks = static_cast<size_t>(cache.num_pages * kLayers * shape.num_kv_heads);
    const size_t rows = blocks * static_cast<size_t>(cache.page_tokens);
    backing_rows_.assign(rows * 2 * static_cast<size_t>(row_bytes), std::byte{0xff});
    checksums_.assign(rows, kv::kRowAbsent);
    backing_slots_.resize(static_cast<size_t>(cache.num_pages));
    std::iota(backing_slots_.begin(), backing_slots_.end(), 0);
    cache.backing = {backing_rows_.data(), checksums_.data(),  backing_slots_.data(), kLayers,
                     shape.num_kv_heads,   cache.page_tokens, row_bytes};
    const auto slots = static_cast<size_t>(repair_slots);
    exact_rows_.resize((slots_.size() + slots) * static_cast<size_t>(cache.exact_slot_bytes()));
    cache.exact = {exact_rows_.data(), slots_.data()};
    owners_.assign(slots, -1);
    last_used_.assign(slots, 0);
    gate.on = true;
    gate.repair = {slots_.data(), static_cast<int32_t>(slots_.size()), repair_slots, owners_.data(), last_used_.data(), &evictions,
                   1};
  }

  int32_t page_of(int32_t sequence, int32_t position) const {
    return table_[static_cast<size_t>(sequence * stride_ + position / cache.page_tokens)];
  }
  // The page of `position` found no room in the backing store.
  void drop_backing(int32_t sequence, int32_t position) {
    backing_slots_[static_cast<size_t>(page_of(sequence, position))] = -1;
  }

  AttentionShape shape;
  kv::RadiusKind radius;
  PagedKvView cache;
  kv::MeterThresholds thresholds{.kappa = kTestKappa};
  kv::GateView gate;
  uint64_t evictions = 0;
  std::vector<std::vector<float>> qkv;

 private:
  const float* at(int32_t sequence, int32_t position, int32_t head) const {
    return qkv[static_cast<size_t>(sequence)].data() + position * shape.qkv_columns() + head * shape.head_dim;
  }
  static constexpr int32_t kLayers = 2;

  void make_transform(const PoolCase& c) {
    signs_ = kv::testing::signs_of(c.dim);
    if (c.rotation) cache.tables.signs = signs_.data();
    kv::testing::RowSource source(7, c.dim);
    for (int32_t i = 0; i < kLayers * c.kv_heads; ++i) {
      const kv::testing::Row row = source.balance();
      for (float value : row) lambda_.push_back(std::pow(value, 0.25f));
    }
    if (c.balance) cache.tables.lambda = lambda_.data();
  }

  void make_bypass(const PoolCase& c) {
    for (int32_t head = 0; head < kLayers * c.kv_heads; ++head) {
      for (int32_t half = 0; half < 2; ++half) {
        for (int32_t i = 0; i < c.outlier_pairs; ++i) {
          bypass_.push_back(static_cast<uint16_t>((3 * i + head) % (c.dim / 2) + half * c.dim / 2));
        }
      }
    }
    cache.tables.bypass = bypass_.data();
  }

  void make_dither() {
    for (int32_t head = 0; head < kLayers * shape.num_kv_heads; ++head) {
      for (int32_t c = 0; c < shape.head_dim; ++c) {
        for (uint32_t row = 0; row < kv::kDitherPeriod; ++row) {
          dither_.push_back(kv::dither_at(kPoolSeed, static_cast<uint32_t>(head / shape.num_kv_heads),
                                          static_cast<uint32_t>(head % shape.num_kv_heads), row,
                                          static_cast<uint32_t>(c)));
        }
      }
    }
    cache.tables.dither = dither_.data();
  }

  void put_exact(int32_t page, int32_t h, int32_t side, int32_t token, int32_t channel, float value) {
    std::byte* rows = cache.exact_page(1, h, page);
    const int64_t index = (int64_t{side} * cache.page_tokens + token) * shape.head_dim + channel;
    if (cache.dtype == DType::kF32) reinterpret_cast<float*>(rows)[index] = value;
    if (cache.dtype == DType::kBF16) reinterpret_cast<uint16_t*>(rows)[index] = f32_to_bf16(value);
    if (cache.dtype == DType::kF16) reinterpret_cast<uint16_t*>(rows)[index] = f32_to_f16(value);
  }

  // Schemes that encode whole pages: the page a slice leaves part full has a slot, until a later slice completes it.
  void set_slots(const Slice& slice, int32_t position, bool exact) {
    const int32_t page = table_[static_cast<size_t>(slice.sequence * stride_ + position / cache.page_tokens)];
    cache.exact = {exact_rows_.data(), slots_.data()};
    for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
      const int64_t key = cache.exact_key(1, h, page);
      slots_[static_cast<size_t>(key)] = exact ? static_cast<int32_t>(key) : -1;
    }
  }
  void stage_filling(const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) {
      const int32_t end = slice.first + slice.count;
      if (cache.record_tokens > kTileTokens && end % cache.page_tokens != 0) set_slots(slice, end, true);
    }
  }
  void unstage_whole(const std::vector<Slice>& slices) {
    for (const Slice& slice : slices) {
      const int32_t pages = (slice.first + slice.count) / cache.page_tokens, first = slice.first / cache.page_tokens;
      if (cache.record_tokens == kTileTokens) continue;
      for (int32_t page = first; page < pages; ++page) set_slots(slice, page * cache.page_tokens, false);
    }
  }

  int32_t stride_ = 0;
  std::vector<std::byte> memory_;
  std::vector<std::byte> exact_rows_;
  std::vector<uint16_t> norms_, bypass_;
  std::vector<int32_t> table_, slots_, backing_slots_;
  std::vector<std::byte> backing_rows_;
  std::vector<uint64_t> checksums_, last_used_;
  std::vector<int64_t> owners_;
  std::vector<float> dither_, scales_;
  kv::testing::Row signs_, lambda_;
};

}  // namespace assay
