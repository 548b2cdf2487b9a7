// Matrix products: right against a double reference, and each row the same bits whatever it is computed with.
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

struct Case {
  int64_t m, n, k;
  DType weight;
  bool bias;
};

class Linear : public testing::TestWithParam<Case> {};

TEST_P(Linear, MatchesDoublePrecision) {
  const auto [m, n, k, dtype, with_bias] = GetParam();
  CpuOps ops(2);
  const StoredMatrix w(n, k, dtype, 1), bias(1, n, DType::kBF16, 2);
  std::vector<float> x = random_floats(static_cast<size_t>(m * k), 3), y(static_cast<size_t>(m * n), 0.5f);
  const LinearPart part{w.view(), with_bias ? bias.view() : ConstTensor()};
  ops.linear(view_of(x, m, k), {&part, 1}, /*accumulate=*/true, view_of(y, m, n));
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0.5 + (with_bias ? bias.floats[static_cast<size_t>(c)] : 0.0f), size = 1.0;
      for (int64_t i = 0; i < k; ++i) {
        const double product =
            static_cast<double>(x[static_cast<size_t>(r * k + i)]) * w.floats[static_cast<size_t>(c * k + i)];
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(y[static_cast<size_t>(r * n + c)], sum, size * 2e-6) << r << "," << c;
    }
  }
}

TEST_P(Linear, RowsDoNotDependOnTheirNeighboursOrThreads) {
  const auto [m, n, k, dtype, with_bias] = GetParam();
  const StoredMatrix w(n, k, dtype, 1), bias(1, n, DType::kF32, 2);
  const LinearPart part{w.view(), with_bias ? bias.view() : ConstTensor()};
  const int64_t all_rows = 300;
  std::vector<float> x = random_floats(static_cast<size_t>(all_rows * k), 3), all(static_cast<size_t>(all_rows * n));
  CpuOps one(1), many(3);
  one.linear(view_of(x, all_rows, k), {&part, 1}, false, view_of(all, all_rows, n));
  const int64_t first = 41;
  std::vector<float> some(static_cast<size_t>(m * n));
  const ConstTensor rows(x.data() + first * k, DType::kF32, m, k, k);
  for (CpuOps* ops : {&one, &many}) {
    std::fill(some.begin(), some.end(), -1.0f);
    ops->linear(rows, {&part, 1}, false, view_of(some, m, n));
    EXPECT_EQ(std::memcmp(some.data(), all.data() + first * n, some.size() * sizeof(float)), 0);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t m : {1, 2, 3, 4, 5, 15, 16, 17, 64, 130}) all.push_back({m, 61, 200, dtype, m % 2 == 0});
    all.push_back({1, 300, 1100, dtype, true});  // more than one part of the inner dimension, a ragged end
    all.push_back({33, 25, 2063, dtype, true});
    all.push_back({7, 1, 3, dtype, false});  // smaller than a vector
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& c = info.param;
  return "m" + std::to_string(c.m) + "n" + std::to_string(c.n) + "k" + std::to_string(c.k) + dtype_name(c.weight) +
         (c.bias ? "_bias" : "");
});

TEST(LinearParts, WriteSideBySideWithOwnDtypes) {
  CpuOps ops(2);
  const int64_t m = 20, k = 96;
  const StoredMatrix a(30, k, DType::kBF16, 1), b(7, k, DType::kF32, 2), c(40, k, DType::kF16, 3),
      bias(1, 7, DType::kF16, 4);
  std::vector<float> x = random_floats(m * k, 5), together(m * 77), apart(m * 77);
  const LinearPart parts[] = {{a.view(), {}}, {b.view(), bias.view()}, {c.view(), {}}};
  ops.linear(view_of(x, m, k), parts, false, view_of(together, m, 77));
  int64_t column = 0;
  for (const LinearPart& part : parts) {
    Tensor out{apart.data() + column, DType::kF32, m, part.weight.rows, 77};
    ops.linear(view_of(x, m, k), {&part, 1}, false, out);
    column += part.weight.rows;
  }
  EXPECT_EQ(std::memcmp(together.data(), apart.data(), together.size() * sizeof(float)), 0);
}

TEST(LinearShard, StridedWeightColumnsSumToTheWhole) {
  CpuOps ops(1);
  const int64_t m = 3, n = 10, k = 64;
  const StoredMatrix w(n, k, DType::kBF16, 1);
  std::vector<float> x = random_floats(m * k, 2), whole(m * n), summed(m * n);
  const LinearPart part{w.view(), {}};
  ops.linear(view_of(x, m, k), {&part, 1}, false, view_of(whole, m, n));
  for (int64_t half : {0, 1}) {
    const ConstTensor columns(w.halves.data() + half * k / 2, DType::kBF16, n, k / 2, k);
    const LinearPart shard{columns, {}};
    const ConstTensor inputs(x.data() + half * k / 2, DType::kF32, m, k / 2, k);
    ops.linear(inputs, {&shard, 1}, half == 1, view_of(summed, m, n));
  }
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(summed[i], whole[i], 1e-4);
}

}  // namespace
}  // namespace assay
