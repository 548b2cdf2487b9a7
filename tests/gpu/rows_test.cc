// Element-wise operations of the GPU against double precision: one case list for each.
#include <random>

#include "tests/gpu/gpu_memory.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

const DType kActivations[] = {DType::kBF16, DType::kF16};

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

TEST(GpuRmsNorm, AnyWidthInPlaceAndWeightsOfAnyDtype) {
  for (DType dtype : kActivations) {
    for (DType weight_dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (int64_t cols : {3, 16, 100, 384, 4096, 5120, 16384}) {
        const int64_t rows = 9;
        std::vector<float> x = random_floats(index(rows * cols), 2, 3.0f), w = random_floats(index(cols), 1);
        GpuMatrix in(rows, cols, dtype, x), weight(1, cols, weight_dtype, w);
        gpu_ops(dtype).rms_norm(in.view(), weight.view(), 1e-5f, in.view());
        std::vector<double> expected;
        for (int64_t r = 0; r < rows; ++r) {
          double squares = 0.0;
          for (int64_t c = 0; c < cols; ++c) squares += std::pow(x[index(r * cols + c)], 2.0);
          const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
          for (int64_t c = 0; c < cols; ++c) expected.push_back(x[index(r * cols + c)] * inverse * w[index(c)]);
        }
        expect_close(in.floats(), expected, rounding_of(dtype) + 2e-6, 1e-4);
      }
    }
  }
}

TEST(GpuSiluMul, AlsoFarOutAndOddWidths) {
  for (DType dtype : kActivations) {
    for (int64_t cols : {1, 67, 1024, 14336}) {
      const int64_t rows = 5;
      std::vector<float> x = random_floats(index(rows * cols * 2), 3, 5.0f);
      x[0] = 1e4f, x[index(2 * cols)] = -1e4f, x[index(4 * cols)] = -88.0f;
      GpuMatrix in(rows, 2 * cols, dtype, x), out(rows, cols, dtype);
      gpu_ops(dtype).silu_mul(in.view(), out.view());
      std::vector<double> expected;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double gate = x[index(r * 2 * cols + c)], up = x[index(r * 2 * cols + cols + c)];
          expected.push_back(std::clamp(gate / (1.0 + std::exp(-gate)) * up, dtype == DType::kF16 ? -65504.0 : -1e30,
                                        dtype == DType::kF16 ? 65504.0 : 1e30));
        }
      }
      expect_close(out.floats(), expected, rounding_of(dtype) + 2e-6, 1e-4);
    }
  }
}

TEST(GpuEmbedAndGather, TakeRowsOfAnyDtype) {
  for (DType dtype : kActivations) {
    for (DType table_dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      std::vector<float> table = random_floats(11 * 40, 1);
      GpuMatrix stored(11, 40, table_dtype, table), out(4, 40, dtype), gathered(2, 40, dtype);
      const GpuArray<int32_t> ids(std::vector<int32_t>{3, 0, 10, 3}), rows(std::vector<int32_t>{2, 0});
      gpu_ops(dtype).embed(stored.view(), ids.data(), out.view());
      gpu_ops(dtype).gather_rows(out.view(), rows.data(), gathered.view());
      const std::vector<float> taken = out.floats(), again = gathered.floats();
      for (size_t c = 0; c < 40; ++c) {
        EXPECT_EQ(taken[40 + c], rounded(dtype, table[c]));
        EXPECT_EQ(again[c], rounded(dtype, table[10 * 40 + c]));
        EXPECT_EQ(again[40 + c], rounded(dtype, table[3 * 40 + c]));
      }
    }
  }
}

struct RopeCase {
  int32_t heads, kv_heads, dim;
  bool norm;
};

void check_rope(DType dtype, const RopeCase& c) {
  const AttentionShape shape{c.heads, c.kv_heads, c.dim};
  const int64_t rows = 5, cols = shape.qkv_columns(), pairs = c.dim / 2;
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < pairs; ++i) inv_freq.push_back(static_cast<float>(std::pow(5e5, -1.0 * i / pairs)));
  const std::vector<int32_t> at = {0, 7, 5000, 131071, 1};
  const GpuArray<int32_t> positions(at);
  BatchView batch;
  batch.num_tokens = static_cast<int32_t>(rows);
  batch.positions = positions.data();
  GpuMatrix angles(rows, c.dim, DType::kF32);
  gpu_ops(dtype).rope_angles(batch, {inv_freq.data(), static_cast<int32_t>(pairs), 1.5f}, angles.view().f32());
  std::vector<float> x = random_floats(index(rows * cols), 3), q = random_floats(index(c.dim), 1), k = q;
  GpuMatrix qkv(rows, cols, dtype, x), q_norm(1, c.dim, DType::kF32, q), k_norm(1, c.dim, DType::kBF16, k);
  const ConstTensor none;
  gpu_ops(dtype).qk_norm_rope(shape, c.norm ? ConstTensor(q_norm.view()) : none,
                              c.norm ? ConstTensor(k_norm.view()) : none, 1e-6f, angles.view().f32(), qkv.view());
  std::vector<double> expected(x.begin(), x.end());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < c.heads + c.kv_heads; ++h) {
      const float* in = x.data() + r * cols + h * c.dim;
      double* out = expected.data() + r * cols + h * c.dim;
      const std::vector<float>& w = h < c.heads ? q : k;
      double squares = 0.0;
      for (int64_t i = 0; i < c.dim; ++i) squares += std::pow(in[i], 2.0);
      const double inverse = c.norm ? 1.0 / std::sqrt(squares / c.dim + 1e-6) : 1.0;
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(static_cast<float>(at[index(r)]) * inv_freq[index(i)]);
        const double a = in[i] * inverse * (c.norm ? w[index(i)] : 1.0);
        const double b = in[i + pairs] * inverse * (c.norm ? w[index(i + pairs)] : 1.0);
        out[i] = 1.5 * (a * std::cos(angle) - b * std::sin(angle));
        out[i + pairs] = 1.5 * (b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }
  expect_close(qkv.floats(), expected, rounding_of(dtype) + 4e-6, 0.05);
}

TEST(GpuRope, NormalisesAndRotatesHeads) {
  for (DType dtype : kActivations) {
    for (const RopeCase& c : {RopeCase{2, 1, 6, true}, {4, 2, 64, false}, {8, 2, 128, true}, {7, 1, 128, false}}) {
      check_rope(dtype, c);
    }
  }
}

}  // namespace
}  // namespace assay
