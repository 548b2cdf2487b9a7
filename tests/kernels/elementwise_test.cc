#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

TEST(RmsNorm, MatchesDoublePrecisionInPlace) {
  CpuOps ops(2);
  for (int64_t cols : {3, 16, 100, 384}) {
    const int64_t rows = 9;
    const StoredMatrix weight(1, cols, DType::kBF16, 1);
    const std::vector<float> x = random_floats(static_cast<size_t>(rows * cols), 2, 30.0f);
    std::vector<float> y = x;
    ops.rms_norm(view_of(y, rows, cols), weight.view(), 1e-5f, view_of(y, rows, cols));
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0.0;
      for (int64_t c = 0; c < cols; ++c) squares += std::pow(x[static_cast<size_t>(r * cols + c)], 2.0);
      const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (int64_t c = 0; c < cols; ++c) {
        const double expected = x[static_cast<size_t>(r * cols + c)] * inverse * weight.floats[static_cast<size_t>(c)];
        EXPECT_NEAR(y[static_cast<size_t>(r * cols + c)], expected, 1e-5 * std::abs(expected) + 1e-6);
      }
    }
  }
}

TEST(SiluMul, MatchesDoublePrecisionAlsoFarOut) {
  CpuOps ops(2);
  const int64_t rows = 5, cols = 67;
  std::vector<float> x = random_floats(rows * cols * 2, 3, 5.0f), y(rows * cols);
  x[0] = 1e4f;
  x[1] = -1e4f;
  x[2] = -88.0f;
  ops.silu_mul(view_of(x, rows, 2 * cols), view_of(y, rows, cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double gate = x[static_cast<size_t>(r * 2 * cols + c)],
                   up = x[static_cast<size_t>(r * 2 * cols + cols + c)];
      const double expected = gate / (1.0 + std::exp(-gate)) * up;
      EXPECT_NEAR(y[static_cast<size_t>(r * cols + c)], expected, 2e-6 * std::abs(expected) + 1e-30);
    }
  }
}

TEST(EmbedAndGather, TakeRows) {
  CpuOps ops(2);
  const StoredMatrix table(11, 40, DType::kF16, 1);
  const std::vector<int32_t> ids = {3, 0, 10, 3};
  std::vector<float> out(4 * 40), gathered(2 * 40);
  ops.embed(table.view(), ids.data(), view_of(out, 4, 40));
  const std::vector<int32_t> rows = {2, 0};
  ops.gather_rows(view_of(out, 4, 40), rows.data(), view_of(gathered, 2, 40));
  for (size_t c = 0; c < 40; ++c) {
    EXPECT_EQ(out[40 + c], table.floats[c]);
    EXPECT_EQ(gathered[c], table.floats[10 * 40 + c]);
    EXPECT_EQ(gathered[40 + c], table.floats[3 * 40 + c]);
  }
}

TEST(Rope, NormalisesAndRotatesHeads) {
  CpuOps ops(2);
  const AttentionShape shape{2, 1, 6};
  const std::vector<float> inv_freq = {1.0f, 0.1f, 0.01f};
  const std::vector<int32_t> positions = {0, 7, 5000};
  BatchView batch;
  batch.num_tokens = 3;
  batch.positions = positions.data();
  std::vector<float> angles(3 * 6);
  ops.rope_angles(batch, {inv_freq.data(), 3, 1.5f}, angles.data());
  const StoredMatrix q_norm(1, 6, DType::kF32, 1), k_norm(1, 6, DType::kBF16, 2);
  const int64_t cols = shape.qkv_columns();
  const std::vector<float> before = random_floats(static_cast<size_t>(3 * cols), 3);
  std::vector<float> qkv = before;
  ops.qk_norm_rope(shape, q_norm.view(), k_norm.view(), 1e-6f, angles.data(), view_of(qkv, 3, cols));
  for (size_t r = 0; r < 3; ++r) {
    for (size_t h = 0; h < 3; ++h) {
      const float* x = before.data() + r * static_cast<size_t>(cols) + h * 6;
      const float* y = qkv.data() + r * static_cast<size_t>(cols) + h * 6;
      const std::vector<float>& w = h < 2 ? q_norm.floats : k_norm.floats;
      double squares = 0.0;
      for (size_t c = 0; c < 6; ++c) squares += x[c] * x[c];
      const double inverse = 1.0 / std::sqrt(squares / 6 + 1e-6);
      for (size_t i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(static_cast<float>(positions[r]) * inv_freq[i]);
        const double a = x[i] * inverse * w[i], b = x[i + 3] * inverse * w[i + 3];
        EXPECT_NEAR(y[i], 1.5 * (a * std::cos(angle) - b * std::sin(angle)), 1e-5);
        EXPECT_NEAR(y[i + 3], 1.5 * (b * std::cos(angle) + a * std::sin(angle)), 1e-5);
      }
    }
    for (size_t c = 18; c < 24; ++c) EXPECT_EQ(qkv[r * 24 + c], before[r * 24 + c]);  // v stays
  }
}

TEST(KvWrite, F16RowsSaturate) {
  CpuOps ops(1);
  const AttentionShape shape{1, 1, 2};
  std::vector<uint16_t> memory(2 * 16 * 2);
  const PagedKvView cache = exact_view(memory.data(), DType::kF16, 1, 1, 16, 1, 2);
  const std::vector<int32_t> zero = {0}, position = {3};
  BatchView batch;
  batch.num_tokens = batch.num_sequences = 1;
  batch.positions = position.data();
  batch.sequences = batch.page_table = zero.data();
  batch.page_table_stride = 1;
  std::vector<float> qkv = {0, 0, 1e6f, -1e6f, 0.5f, std::numeric_limits<float>::quiet_NaN()};
  ops.kv_write(0, batch, shape, view_of(qkv, 1, 6), cache);
  EXPECT_EQ(f16_to_f32(memory[static_cast<size_t>(ExactRecord::k_index(0, 3))]), 65504.0f);
  EXPECT_EQ(f16_to_f32(memory[static_cast<size_t>(ExactRecord::k_index(1, 3))]), -65504.0f);
  EXPECT_EQ(f16_to_f32(memory[static_cast<size_t>(ExactRecord::v_index(2, 0, 3))]), 0.5f);
  EXPECT_TRUE(std::isnan(f16_to_f32(memory[static_cast<size_t>(ExactRecord::v_index(2, 1, 3))])));
}

}  // namespace
}  // namespace assay
