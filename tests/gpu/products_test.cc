// Matrix products of the GPU against double precision, in every way they are computed: streamed weights for few rows,
// cuBLASLt for many, the plain kernel for the rest.
#include "tests/gpu/gpu_memory.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

struct Case {
  int64_t m, n, k;
  DType activation, weight, out;
  bool bias, accumulate;
};

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

void check(const Case& c) {
  SCOPED_TRACE("m " + std::to_string(c.m) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) + " " +
               dtype_name(c.activation) + " x " + dtype_name(c.weight) + " -> " + dtype_name(c.out) +
               (c.bias ? " bias" : "") + (c.accumulate ? " accumulate" : ""));
  std::vector<float> x = random_floats(index(c.m * c.k), 1), w = random_floats(index(c.n * c.k), 2),
                     b = random_floats(index(c.n), 3), y = random_floats(index(c.m * c.n), 4);
  GpuMatrix gx(c.m, c.k, c.activation, x), gw(c.n, c.k, c.weight, w), gb(1, c.n, c.weight, b), gy(c.m, c.n, c.out);
  if (c.accumulate) gy.set(y);
  const LinearPart part{gw.view(), c.bias ? ConstTensor(gb.view()) : ConstTensor()};
  gpu_ops(c.activation).linear(gx.view(), {&part, 1}, c.accumulate, gy.view());
  const std::vector<float> got = gy.floats();
  double worst = 0.0;
  for (int64_t r = 0; r < c.m; ++r) {
    for (int64_t j = 0; j < c.n; ++j) {
      const double bias = c.bias ? b[index(j)] : 0.0, old = c.accumulate ? y[index(r * c.n + j)] : 0.0;
      double sum = bias + old, size = std::abs(sum);
      for (int64_t i = 0; i < c.k; ++i) {
        const double product = static_cast<double>(x[index(r * c.k + i)]) * w[index(j * c.k + i)];
        sum += product;
        size += std::abs(product);
      }
      // Product, bias and old output may be rounded to the output's dtype before they join, then the sum is; a float
      // sum's rounding grows with the size of its terms.
      const double joined = std::abs(sum) + std::abs(sum - bias - old) + std::abs(bias) + std::abs(old);
      const double allowed = rounding_of(c.out) * joined + 3e-6 * size;
      const double error = std::abs(got[index(r * c.n + j)] - sum) / allowed;
      if (!(error <= worst)) worst = error;
    }
  }
  EXPECT_LE(worst, 1.0);
}

TEST(GpuLinear, FewRowsStreamTheWeights) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t m : {1, 2, 3, 7, 8, 9, 15, 16}) {
      check({m, 61, 200, dtype, dtype, dtype, true, true});
      check({m, 512, 1024, dtype, dtype, DType::kF32, false, false});
      check({m, 33, 2056, dtype, dtype, dtype, false, true});
      check({m, 16, 8, dtype, dtype, dtype, true, false});
    }
  }
}

TEST(GpuLinear, ManyRows) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t m : {17, 64, 130, 300}) {
      check({m, 64, 200, dtype, dtype, dtype, true, true});
      check({m, 512, 384, dtype, dtype, dtype, false, true});
      check({m, 520, 128, dtype, dtype, DType::kF32, false, false});
      check({m, 61, 136, dtype, dtype, dtype, true, false});
    }
  }
}

TEST(GpuLinear, OtherShapesAndDtypesTakeThePlainKernel) {
  check({3, 10, 7, DType::kBF16, DType::kBF16, DType::kBF16, true, true});
  check({20, 9, 33, DType::kF16, DType::kF16, DType::kF32, false, false});
  check({5, 40, 64, DType::kBF16, DType::kF32, DType::kBF16, true, false});
  check({40, 40, 64, DType::kBF16, DType::kF16, DType::kBF16, false, true});
}

// Parts that lie one behind the other are one product, others several: the same numbers either way.
TEST(GpuLinear, PartsWriteSideBySide) {
  for (int64_t m : {2, 50}) {
    const int64_t k = 96, rows[] = {32, 8, 40}, total = 80;
    std::vector<float> x = random_floats(index(m * k), 5), w = random_floats(index(total * k), 6),
                       bias = random_floats(index(total), 7);
    GpuMatrix gx(m, k, DType::kBF16, x), gw(total, k, DType::kBF16, w), gb(1, total, DType::kBF16, bias);
    GpuMatrix together(m, total, DType::kBF16), apart(m, total, DType::kBF16);
    std::vector<LinearPart> parts;
    int64_t first = 0;
    for (int64_t n : rows) {
      const auto* weight = static_cast<const uint16_t*>(gw.view().data) + first * k;
      const auto* b = static_cast<const uint16_t*>(gb.view().data) + first;
      parts.push_back({{weight, DType::kBF16, n, k, k}, {b, DType::kBF16, 1, n, n}});
      first += n;
    }
    gpu_ops(DType::kBF16).linear(gx.view(), parts, false, together.view());
    std::swap(parts[1].bias, parts[2].bias);  // now the biases do not continue each other
    gpu_ops(DType::kBF16).linear(gx.view(), {parts.data(), 1}, false, [&] {
      Tensor out = apart.view();
      out.cols = 32;
      return out;
    }());
    const std::vector<float> a = together.floats(), b = apart.floats();
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < 32; ++c)
        EXPECT_NEAR(a[index(r * total + c)], b[index(r * total + c)], 0.05) << r << "," << c;
      for (int64_t c = 32; c < total; ++c) {
        double sum = bias[index(c)];
        for (int64_t i = 0; i < k; ++i) sum += static_cast<double>(x[index(r * k + i)]) * w[index(c * k + i)];
        EXPECT_NEAR(a[index(r * total + c)], sum, 0.01 * std::abs(sum) + 0.01);
        EXPECT_TRUE(std::isnan(b[index(r * total + c)])) << "written beside the part";
      }
    }
  }
}

TEST(GpuGatedLinear, WithAndWithoutTheProductsInBetween) {
  for (int64_t m : {1, 5, 16, 20}) {
    const int64_t n = 44, k = 136;
    std::vector<float> x = random_floats(index(m * k), 1), w = random_floats(index(2 * n * k), 2, 0.2f),
                       b = random_floats(index(2 * n), 3);
    GpuMatrix gx(m, k, DType::kBF16, x), gw(2 * n, k, DType::kBF16, w), gb(1, 2 * n, DType::kBF16, b);
    GpuMatrix between(m, 2 * n, DType::kBF16), out(m, n, DType::kBF16);
    std::vector<LinearPart> parts;
    for (int64_t half : {0, 1}) {
      parts.push_back({{static_cast<const uint16_t*>(gw.view().data) + half * n * k, DType::kBF16, n, k, k},
                       {static_cast<const uint16_t*>(gb.view().data) + half * n, DType::kBF16, 1, n, n}});
    }
    gpu_ops(DType::kBF16).gated_linear(gx.view(), parts, between.view(), out.view());
    std::vector<double> expected;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double gate = b[index(j)], up = b[index(n + j)];
        for (int64_t i = 0; i < k; ++i) {
          gate += static_cast<double>(x[index(r * k + i)]) * w[index(j * k + i)];
          up += static_cast<double>(x[index(r * k + i)]) * w[index((n + j) * k + i)];
        }
        expected.push_back(gate / (1.0 + std::exp(-gate)) * up);
      }
    }
    expect_close(out.floats(), expected, 0x1p-6, 0.05);  // beyond 16 rows the products are rounded in between
  }
}

TEST(GpuLinear, RowsOfAFewDoNotDependOnTheirNeighbours) {
  const int64_t n = 256, k = 512;
  std::vector<float> x = random_floats(8 * index(k), 1), w = random_floats(index(n * k), 2);
  GpuMatrix gx(8, k, DType::kBF16, x), gw(n, k, DType::kBF16, w), all(8, n, DType::kF32), one(1, n, DType::kF32);
  const LinearPart part{gw.view(), {}};
  gpu_ops(DType::kBF16).linear(gx.view(), {&part, 1}, false, all.view());
  gpu_ops(DType::kBF16).linear(gx.view().first_rows(1), {&part, 1}, false, one.view());
  const std::vector<float> a = all.floats(), b = one.floats();
  EXPECT_EQ(std::memcmp(a.data(), b.data(), b.size() * sizeof(float)), 0);
}

// What is replayed reads the memory as it is then, and gives the bits that issuing gives.
TEST(GpuRepeat, ReplaysOnNewContents) {
  Ops& ops = gpu_ops(DType::kBF16);
  const int64_t m = 4, n = 128, k = 256;
  std::vector<float> w = random_floats(index(n * k), 2), norm(index(k), 1.0f);
  GpuMatrix gw(n, k, DType::kBF16, w), gn(1, k, DType::kBF16, norm), gx(m, k, DType::kBF16), normed(m, k, DType::kBF16),
      out(m, n, DType::kF32), again(m, n, DType::kF32);
  const LinearPart part{gw.view(), {}};
  const auto issue_into = [&](const Tensor& to) {
    ops.rms_norm(gx.view(), gn.view(), 1e-6f, normed.view());
    ops.linear(normed.view(), {&part, 1}, false, to);
  };
  const uint64_t key[] = {0x5eed, 1};
  for (uint32_t round = 0; round < 5; ++round) {
    std::vector<float> x = random_floats(index(m * k), 10 + round);
    gx.set(x);
    ops.run_repeatable(key, [&] { issue_into(out.view()); });
    issue_into(again.view());
    const std::vector<float> a = out.floats(), b = again.floats();
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "round " << round;
    EXPECT_FALSE(std::isnan(a[0]));
  }
}

}  // namespace
}  // namespace assay
