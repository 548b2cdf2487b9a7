// Sequences over a paged pool that exists twice, on the GPU and on the CPU, and what attention over it means in
// float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/attention.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/random_data.h"

namespace assay::testing {

struct AttentionCase {
  int32_t kv_heads, group, dim, page_tokens;
  DType dtype;
  KvFormat format;
  float loud = 1.0f;  // standard deviation of q and k
  bool transform = true;

  std::string name() const {
    return std::string(format == KvFormat::kExact ? "exact" : "certified") + "_kv" + std::to_string(kv_heads) + "_g" +
           std::to_string(group) + "_d" + std::to_string(dim) + "_p" + std::to_string(page_tokens) + "_" +
           dtype_name(dtype) + (transform ? "" : "_plain") + (loud == 1.0f ? "" : "_loud");
  }
};

inline uint16_t bits_of(DType dtype, float x) {
  return dtype == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x);
}
inline float float_of(DType dtype, uint16_t bits) {
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

class AttentionModel {
 public:
  struct Slice {
    int32_t sequence, first, count;
  };
  struct Result {
    std::vector<float> gpu, cpu;           // [rows][heads x dim]
    std::vector<kv::MeterCell> cells;      // [rows][heads], of the GPU
    std::vector<kv::MeterCell> cpu_cells;  // likewise
  };

  AttentionModel(const AttentionCase& c, const std::vector<int32_t>& lengths, uint32_t seed = 1)
      : shape{c.kv_heads * c.group, c.kv_heads, c.dim}, case_(c), lengths_(lengths) {
    for (int32_t length : lengths) stride_ = std::max(stride_, (length + c.page_tokens - 1) / c.page_tokens);
    int32_t pages = 0;
    for (int32_t length : lengths) pages += (length + c.page_tokens - 1) / c.page_tokens;
    table_.assign(lengths.size() * static_cast<size_t>(stride_), 0);
    std::vector<int32_t> order(static_cast<size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t s = 0, next = 0; s < lengths.size(); ++s) {
      for (int32_t i = 0; i * c.page_tokens < lengths[s]; ++i)
        table_[s * static_cast<size_t>(stride_) + static_cast<size_t>(i)] = order[next++];
    }
    cache.format = c.format;
    cache.dtype = c.dtype;
    cache.num_layers = 2;
    cache.num_pages = pages;
    cache.page_tokens = c.page_tokens;
    cache.num_kv_heads = c.kv_heads;
    cache.head_dim = c.dim;
    cache.record_bytes = is_compressed(c.format) ? CertifiedRecord::bytes(c.dim) : ExactRecord::bytes(c.dim, c.dtype);
    const size_t bytes = static_cast<size_t>(2 * pages * cache.page_layer_bytes());
    memory_.assign(bytes, std::byte{0xff});
    gpu_memory_ = std::make_unique<DeviceArray<std::byte>>(bytes);
    norms_.assign(static_cast<size_t>(2 * c.kv_heads * pages), uint16_t{0xffff});
    gpu_norms_ = std::make_unique<DeviceArray<uint16_t>>(norms_.size());
    cache.base = memory_.data();
    cache.tables.value_norms = norms_.data();
    gpu_cache = cache;
    gpu_cache.base = gpu_memory_->data();
    gpu_cache.tables.value_norms = gpu_norms_->data();
    if (c.format == KvFormat::kCertified && c.transform) add_transform(random);
    make_rows(seed);
    context.num_multiprocessors = 0;
    cudaDeviceProp properties;
    ASSAY_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    context.num_multiprocessors = properties.multiProcessorCount;
    context.max_shared_bytes_per_block = properties.sharedMemPerBlockOptin;
    ASSAY_CUDA_CHECK(cudaStreamCreate(&context.stream));
  }
  ~AttentionModel() { cudaStreamDestroy(context.stream); }

  // Attention over the slices and their rows into both pools, as the pool's order demands. Slices of one row first.
  Result run(const std::vector<Slice>& slices, Ops* cpu, bool metered = true) {
    return step(slices, cpu, true, metered);
  }
  // The rows alone.
  void fill(const std::vector<Slice>& slices, Ops* cpu) { step(slices, cpu, false, false); }

  const uint16_t* row(int32_t sequence, int32_t position, int32_t head) const {
    return rows_[static_cast<size_t>(sequence)].data() +
           static_cast<size_t>(position) * static_cast<size_t>(shape.qkv_columns()) +
           static_cast<size_t>(head * shape.head_dim);
  }
  float element(int32_t sequence, int32_t position, int32_t head, int32_t c) const {
    return float_of(case_.dtype, row(sequence, position, head)[c]);
  }

  // Copies the GPU's pool over the CPU's, after it was compared.
  void download_pool(std::vector<std::byte>& records, std::vector<uint16_t>& norms) const {
    records = gpu_memory_->download();
    norms = gpu_norms_->download();
  }
  const std::vector<std::byte>& cpu_records() const { return memory_; }
  const std::vector<uint16_t>& cpu_norms() const { return norms_; }
  const int32_t* pages_of(int32_t sequence) const { return table_.data() + sequence * stride_; }
  const AttentionCase& attention_case() const { return case_; }
  const std::vector<float>& signs() const { return signs_; }
  const float* lambda(int32_t kv_head) const {
    return lambda_.empty() ? nullptr : lambda_.data() + (shape.num_kv_heads + kv_head) * shape.head_dim;
  }
  int32_t length(int32_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }

  static constexpr int32_t kLayer = 1;
  AttentionShape shape;
  PagedKvView cache, gpu_cache;
  CudaContext context;

 private:
  void add_transform(std::mt19937& random) {
    signs_.resize(static_cast<size_t>(shape.head_dim));
    kv::rotation_signs(shape.head_dim, signs_.data());
    std::uniform_real_distribution<float> exponent(-1.0f, 1.0f);
    for (int32_t i = 0; i < 2 * shape.num_kv_heads * shape.head_dim; ++i)
      lambda_.push_back(std::exp2(exponent(random)));
    gpu_signs_ = std::make_unique<DeviceArray<float>>(signs_);
    gpu_lambda_ = std::make_unique<DeviceArray<float>>(lambda_);
    cache.tables.signs = signs_.data();
    cache.tables.lambda = lambda_.data();
    gpu_cache.tables.signs = gpu_signs_->data();
    gpu_cache.tables.lambda = gpu_lambda_->data();
  }

  void make_rows(uint32_t seed) {
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const size_t count = static_cast<size_t>(lengths_[s]) * static_cast<size_t>(shape.qkv_columns());
      std::vector<uint16_t> rows(count);
      uint64_t state = seed * 0x9e3779b97f4a7c15u + s * 0xbf58476d1ce4e5b9u + 1;
      const size_t v_column = static_cast<size_t>((shape.num_heads + shape.num_kv_heads) * shape.head_dim);
      for (size_t i = 0; i < count; ++i) {
        float sum = 0;  // of four uniform numbers: nearly normal, standard deviation 1
        for (int k = 0; k < 4; ++k) {
          state ^= state << 13, state ^= state >> 7, state ^= state << 17;
          sum += static_cast<float>(state >> 40) * 0x1p-24f - 0.5f;
        }
        sum *= 1.7320508f;
        if (i % static_cast<size_t>(shape.qkv_columns()) < v_column) sum *= case_.loud;
        rows[i] = bits_of(case_.dtype, sum);
      }
      rows_.push_back(std::move(rows));
    }
  }

  Result step(const std::vector<Slice>& slices, Ops* cpu, bool attend, bool metered) {
    std::vector<int32_t> positions, owners, first_row = {0}, table;
    std::vector<uint16_t> qkv;
    const size_t cols = static_cast<size_t>(shape.qkv_columns());
    int32_t decodes = 0, longest = 0;
    for (size_t s = 0; s < slices.size(); ++s) {
      const Slice& slice = slices[s];
      decodes += slice.count == 1 && decodes == static_cast<int32_t>(s);
      longest = std::max(longest, slice.count);
      for (int32_t p = slice.first; p < slice.first + slice.count; ++p) {
        positions.push_back(p);
        owners.push_back(static_cast<int32_t>(s));
      }
      const uint16_t* from = row(slice.sequence, slice.first, 0);
      qkv.insert(qkv.end(), from, from + cols * static_cast<size_t>(slice.count));
      first_row.push_back(static_cast<int32_t>(positions.size()));
      table.insert(table.end(), pages_of(slice.sequence), pages_of(slice.sequence) + stride_);
    }
    const int32_t tokens = static_cast<int32_t>(positions.size());
    const size_t out_cols = static_cast<size_t>(shape.num_heads * shape.head_dim);
    BatchView batch;
    batch.num_tokens = tokens;
    batch.num_sequences = static_cast<int32_t>(slices.size());
    batch.page_table_stride = stride_;
    batch.max_context = 1 << 20;
    batch.num_decodes = decodes;
    batch.max_slice_rows = longest;
    std::vector<int32_t> index(static_cast<size_t>(tokens));
    std::iota(index.begin(), index.end(), 0);
    Result result;
    const size_t num_cells = static_cast<size_t>(tokens * shape.num_heads);
    result.cells.resize(num_cells);
    kv::MeterView meter;
    meter.num_metered = metered ? tokens : 0;
    meter.num_heads = shape.num_heads;

    if (cpu != nullptr) {
      std::vector<float> rows(qkv.size());
      for (size_t i = 0; i < qkv.size(); ++i) rows[i] = float_of(case_.dtype, qkv[i]);
      result.cpu.resize(static_cast<size_t>(tokens) * out_cols);
      result.cpu_cells.resize(num_cells);
      batch.positions = positions.data();
      batch.sequences = owners.data();
      batch.first_row = first_row.data();
      batch.page_table = table.data();
      meter.cell_of_row = index.data();
      meter.cells = result.cpu_cells.data();
      const Tensor in = view_of(rows, tokens, static_cast<int64_t>(cols));
      const Tensor out = view_of(result.cpu, tokens, static_cast<int64_t>(out_cols));
      if (!is_compressed(cache.format)) cpu->kv_write(kLayer, batch, shape, in, cache);
      if (attend) cpu->attention(kLayer, batch, shape, in, cache, meter, out);
      if (is_compressed(cache.format)) cpu->kv_write(kLayer, batch, shape, in, cache);
    }

    DeviceArray<int32_t> d_positions(positions), d_owners(owners), d_first(first_row), d_table(table), d_index(index);
    DeviceArray<uint16_t> d_qkv(qkv), d_out(static_cast<size_t>(tokens) * out_cols);
    DeviceArray<kv::MeterCell> d_cells(num_cells);
    batch.positions = d_positions.data();
    batch.sequences = d_owners.data();
    batch.first_row = d_first.data();
    batch.page_table = d_table.data();
    meter.cell_of_row = d_index.data();
    meter.cells = d_cells.data();
    const ConstTensor in(d_qkv.data(), case_.dtype, tokens, static_cast<int64_t>(cols), static_cast<int64_t>(cols));
    const Tensor out{d_out.data(), case_.dtype, tokens, static_cast<int64_t>(out_cols), static_cast<int64_t>(out_cols)};
    if (!is_compressed(cache.format)) launch_kv_write(context, kLayer, batch, shape, in, gpu_cache);
    if (attend) launch_attention(context, kLayer, batch, shape, in, gpu_cache, meter, out);
    if (is_compressed(cache.format)) launch_kv_write(context, kLayer, batch, shape, in, gpu_cache);
    ASSAY_CUDA_CHECK(context.first_error);
    ASSAY_CUDA_CHECK(cudaStreamSynchronize(context.stream));
    if (!attend) return result;
    for (uint16_t bits : d_out.download()) result.gpu.push_back(float_of(case_.dtype, bits));
    if (metered && is_compressed(cache.format)) result.cells = d_cells.download();
    return result;
  }

  AttentionCase case_;
  std::vector<int32_t> lengths_;
  int32_t stride_ = 0;
  std::vector<std::byte> memory_;
  std::vector<uint16_t> norms_;
  std::vector<int32_t> table_;
  std::vector<std::vector<uint16_t>> rows_;
  std::vector<float> signs_, lambda_;
  std::unique_ptr<DeviceArray<std::byte>> gpu_memory_;
  std::unique_ptr<DeviceArray<uint16_t>> gpu_norms_;
  std::unique_ptr<DeviceArray<float>> gpu_signs_, gpu_lambda_;
};

// One cell in float64: `stored` tokens as the records hold them, the others from qkv.
struct Truth {
  std::vector<double> out;
  kv::MeterSums<double> sums;
  double tv = 0;             // of the weights served against those of exact rows
  double largest_value = 0;  // |v| of stored exact rows
};

class TruthReader {
 public:
  TruthReader(const AttentionModel& model, std::vector<std::byte> records)
      : m_(model), records_(std::move(records)), view_(model.cache) {
    view_.base = records_.data();
  }

  Truth of(int32_t sequence, int32_t position, int32_t head, int32_t stored) const {
    const int32_t d = m_.shape.head_dim, h = head / (m_.shape.num_heads / m_.shape.num_kv_heads);
    const bool compressed = is_compressed(view_.format);
    std::vector<double> q(static_cast<size_t>(d)), q_pool;
    for (int32_t c = 0; c < d; ++c) q[static_cast<size_t>(c)] = m_.element(sequence, position, head, c);
    q_pool = q;
    if (m_.lambda(h) != nullptr) {
      for (int32_t c = 0; c < d; ++c) q_pool[static_cast<size_t>(c)] *= m_.lambda(h)[c];
      rotate(q_pool);
    }
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    double norm = 0;
    for (double x : q_pool) norm += x * x;
    const double factor = scale * std::sqrt(norm);
    double query_norm = 0;
    for (double x : q) query_norm += x * x;
    Truth truth;
    std::vector<double> served, exact, pool_out(static_cast<size_t>(d)), own_out(static_cast<size_t>(d)), key(pool_out),
        value(pool_out);
    double max = -1e300;
    for (int32_t t = 0; t <= position; ++t) {
      const bool in_pool = compressed && t < stored;
      double exact_logit = 0, logit = 0, key_norm = 0, value_norm = 0, witness = 0, rho = 0;
      for (int32_t c = 0; c < d; ++c) {
        const double k = m_.element(sequence, t, m_.shape.num_heads + h, c);
        exact_logit += q[static_cast<size_t>(c)] * k;
        key_norm += k * k;
      }
      logit = exact_logit;
      if (in_pool) {
        logit = 0;
        decode(sequence, t, h, key, value, witness, rho);
        for (int32_t c = 0; c < d; ++c) logit += q_pool[static_cast<size_t>(c)] * key[static_cast<size_t>(c)];
        for (int32_t c = 0; c < d; ++c) {
          const double v = m_.element(sequence, t, m_.shape.num_heads + m_.shape.num_kv_heads + h, c);
          value_norm += v * v;
        }
        truth.largest_value = std::max(truth.largest_value, std::sqrt(value_norm));
      }
      served.push_back(logit * scale);
      exact.push_back(exact_logit * scale);
      // Own rows: the rounding of their float sum alone.
      const double own_radius = scale * std::sqrt(query_norm * key_norm) * kv::dot_margin(d);
      kv::add_token(truth.sums, served.back(), in_pool ? factor * witness : own_radius, rho);
      // A running softmax of the outputs.
      const double new_max = std::max(max, served.back());
      const double shrink = std::exp(max - new_max), p = std::exp(served.back() - new_max);
      max = new_max;
      for (int32_t c = 0; c < d; ++c) {
        const size_t i = static_cast<size_t>(c);
        const double v =
            in_pool ? value[i] : m_.element(sequence, t, m_.shape.num_heads + m_.shape.num_kv_heads + h, c);
        pool_out[i] = pool_out[i] * shrink + (in_pool ? p * v : 0.0);
        own_out[i] = own_out[i] * shrink + (in_pool ? 0.0 : p * v);
      }
    }
    if (m_.lambda(h) != nullptr) rotate_back(pool_out);
    for (size_t i = 0; i < pool_out.size(); ++i) truth.out.push_back((pool_out[i] + own_out[i]) / truth.sums.weight);
    truth.tv = distance(served, exact);
    return truth;
  }

 private:
  static double distance(std::vector<double> a, std::vector<double> b) {
    for (std::vector<double>* x : {&a, &b}) {
      const double top = *std::max_element(x->begin(), x->end());
      double total = 0;
      for (double& value : *x) total += value = std::exp(value - top);
      for (double& value : *x) value /= total;
    }
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]) / 2;
    return sum;
  }
  static void hadamard(std::vector<double>& x) {
    for (size_t width = 1; width < x.size(); width *= 2) {
      for (size_t block = 0; block < x.size(); block += 2 * width) {
        for (size_t i = block; i < block + width; ++i) {
          const double a = x[i], b = x[i + width];
          x[i] = a + b;
          x[i + width] = a - b;
        }
      }
    }
    for (double& value : x) value /= std::sqrt(static_cast<double>(x.size()));
  }
  void rotate(std::vector<double>& x) const {
    for (size_t i = 0; i < x.size(); ++i) x[i] *= m_.signs()[i];
    hadamard(x);
  }
  void rotate_back(std::vector<double>& x) const {
    hadamard(x);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= m_.signs()[i];
  }
  void decode(int32_t sequence, int32_t t, int32_t h, std::vector<double>& key, std::vector<double>& value,
              double& witness, double& rho) const {
    const int32_t d = m_.shape.head_dim, token = t % kTileTokens, side = kv::value_side_index(token);
    const std::byte* record = view_.record_of(AttentionModel::kLayer, m_.pages_of(sequence), h, t);
    const uint8_t* k = reinterpret_cast<const uint8_t*>(record);
    const uint8_t* v = k + CertifiedRecord::v_payload(d);
    const auto half = [&](int64_t offset, int32_t i) {
      return static_cast<double>(kv::half_to_float(reinterpret_cast<const uint16_t*>(record + offset)[i]));
    };
    const double ks = half(CertifiedRecord::k_scales(d), token), vs = half(CertifiedRecord::v_scales(d), side);
    for (int32_t c = 0; c < d; ++c) {
      key[static_cast<size_t>(c)] = ks * (k[kv::key_fragment_index(token, c, d)] - 128);
      value[static_cast<size_t>(c)] = vs * (v[kv::value_fragment_index(token, c, d)] - 128);
    }
    witness = half(CertifiedRecord::witness(d), token);
    rho = half(CertifiedRecord::rho(d), side);
  }

  const AttentionModel& m_;
  std::vector<std::byte> records_;
  PagedKvView view_;
};

}  // namespace assay::testing
