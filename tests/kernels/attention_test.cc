// Paged attention: right against a double reference, the same bits in any batch, chunk and thread count, and blind to
// what lies in a page beyond the sequence's end.
#include "kernels/cpu/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

struct Case {
  int32_t kv_heads, group, dim, page_tokens;
  DType dtype;
};

// A cache whose unused rows hold NaN, and sequences with q, k, v for every position.
class Model {
 public:
  Model(const Case& c, const std::vector<int32_t>& lengths) : shape{c.kv_heads * c.group, c.kv_heads, c.dim} {
    for (int32_t length : lengths) stride_ = std::max(stride_, (length + c.page_tokens - 1) / c.page_tokens);
    const int32_t num_pages = stride_ * static_cast<int32_t>(lengths.size());
    cache = exact_view(nullptr, c.dtype, 2, num_pages, c.page_tokens, c.kv_heads, c.dim);
    memory_.assign(static_cast<size_t>(2 * num_pages * cache.page_layer_bytes()),
                   std::byte{0xff});  // NaN in every dtype
    cache.base = memory_.data();
    table_.resize(static_cast<size_t>(num_pages));
    for (size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<int32_t>(i * 7 % table_.size());
    if (table_.size() % 7 == 0) std::iota(table_.rbegin(), table_.rend(), 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
      qkv.push_back(
          random_floats(static_cast<size_t>(lengths[s] * shape.qkv_columns()), static_cast<uint32_t>(10 + s)));
    }
  }

  struct Slice {
    int32_t sequence, first, count;
  };

  // Writes the slices' k and v and returns their outputs, row by row.
  std::vector<float> run(Ops& ops, const std::vector<Slice>& slices) {
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
    std::vector<float> out(static_cast<size_t>(tokens * out_cols));
    ops.kv_write(1, batch, shape, view_of(rows, tokens, cols), cache);
    ops.attention(1, batch, shape, view_of(rows, tokens, cols), cache, {}, view_of(out, tokens, out_cols));
    return out;
  }

  double stored(float value) const {
    if (cache.dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
    return cache.dtype == DType::kF16 ? f16_to_f32(f32_to_f16(value)) : value;
  }

  // Output of one head at one position, in double.
  std::vector<double> reference(int32_t sequence, int32_t position, int32_t head) const {
    const int32_t cols = shape.qkv_columns(), dim = shape.head_dim, kv = head / (shape.num_heads / shape.num_kv_heads);
    const float* rows = qkv[static_cast<size_t>(sequence)].data();
    const float* q = rows + position * cols + head * dim;
    std::vector<double> weights, out(static_cast<size_t>(dim));
    double total = 0.0;
    for (int32_t t = 0; t <= position; ++t) {
      const float* k = rows + t * cols + (shape.num_heads + kv) * dim;
      double score = 0.0;
      for (int32_t c = 0; c < dim; ++c) score += q[c] * stored(k[c]);
      weights.push_back(std::exp(score / std::sqrt(dim)));
      total += weights.back();
    }
    for (int32_t t = 0; t <= position; ++t) {
      const float* v = rows + t * cols + (shape.num_heads + shape.num_kv_heads + kv) * dim;
      for (int32_t c = 0; c < dim; ++c)
        out[static_cast<size_t>(c)] += weights[static_cast<size_t>(t)] / total * stored(v[c]);
    }
    return out;
  }

  AttentionShape shape;
  PagedKvView cache;
  std::vector<std::vector<float>> qkv;

 private:
  int32_t stride_ = 0;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, MatchesDoublePrecision) {
  Model model(GetParam(), {70, 1300});
  CpuOps ops(2);
  const std::vector<float> out = model.run(ops, {{0, 0, 70}, {1, 0, 1300}});
  const size_t dim = static_cast<size_t>(model.shape.head_dim), heads = static_cast<size_t>(model.shape.num_heads);
  for (const auto& [sequence, position, row] :
       {std::array{0, 0, 0}, {0, 15, 15}, {0, 16, 16}, {0, 69, 69}, {1, 511, 581}, {1, 512, 582}, {1, 1299, 1369}}) {
    for (size_t h = 0; h < heads; ++h) {
      const std::vector<double> expected = model.reference(sequence, position, static_cast<int32_t>(h));
      for (size_t c = 0; c < dim; ++c) {
        ASSERT_NEAR(out[(static_cast<size_t>(row) * heads + h) * dim + c], expected[c], 3e-6) << position << " " << h;
      }
    }
  }
}

TEST_P(Attention, ChunksBatchesAndThreadsDoNotMatter) {
  const int32_t length = 1100;
  Model whole(GetParam(), {length, 40});
  CpuOps one(1), many(4);
  const std::vector<float> expected = whole.run(one, {{0, 0, length}});
  const size_t row_floats = expected.size() / length;
  for (int32_t chunk : {1, 16, 17, 300}) {
    Model model(GetParam(), {length, 40});
    for (int32_t first = 0, step = 0; first < length; first += chunk, ++step) {
      const int32_t count = std::min(chunk, length - first);
      std::vector<Model::Slice> slices = {{0, first, count}};
      if (step % 3 == 1) slices.insert(slices.begin(), {1, 0, 40});  // company
      if (step % 3 == 2) slices.push_back({1, 0, 5});
      const std::vector<float> out = model.run(step % 2 == 0 ? many : one, slices);
      const size_t offset = step % 3 == 1 ? 40 * row_floats : 0;
      ASSERT_EQ(std::memcmp(out.data() + offset, expected.data() + static_cast<size_t>(first) * row_floats,
                            static_cast<size_t>(count) * row_floats * sizeof(float)),
                0)
          << "chunk " << chunk << " at " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Case{2, 3, 128, 16, DType::kBF16}, Case{1, 7, 64, 32, DType::kF32},
                                         Case{8, 1, 16, 16, DType::kF16}, Case{2, 4, 32, 48, DType::kBF16},
                                         Case{1, 2, 10, 16, DType::kF32}, Case{1, 1, 2, 16, DType::kF16}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return "kv" + std::to_string(c.kv_heads) + "g" + std::to_string(c.group) + "d" +
                                  std::to_string(c.dim) + "p" + std::to_string(c.page_tokens) + dtype_name(c.dtype);
                         });

// Scores far apart and rising: the running maximum moves at every tile, and nothing overflows.
TEST(AttentionExtremes, RisingScores) {
  Model model({1, 1, 16, 16, DType::kF32}, {600});
  const int32_t cols = model.shape.qkv_columns();
  for (int32_t p = 0; p < 600; ++p) {
    for (int32_t c = 0; c < 16; ++c) {
      model.qkv[0][static_cast<size_t>(p * cols + c)] = 1.0f;
      model.qkv[0][static_cast<size_t>(p * cols + 16 + c)] = static_cast<float>(p);  // score 4 p
    }
  }
  CpuOps ops(2);
  const std::vector<float> out = model.run(ops, {{0, 0, 600}});
  const std::vector<double> expected = [&] {
    const float* v = model.qkv[0].data() + 599 * cols + 32;
    const float* before = v - cols;
    std::vector<double> mix;
    for (int32_t c = 0; c < 16; ++c) mix.push_back((v[c] + std::exp(-4.0) * before[c]) / (1.0 + std::exp(-4.0)));
    return mix;
  }();
  for (size_t c = 0; c < 16; ++c) EXPECT_NEAR(out[599 * 16 + c], expected[c], 2e-3);
}

}  // namespace
}  // namespace assay
