// Every instruction set the binary carries and this machine has gives the same results as the best one, up to rounding.
#include "hwy/targets.h"

#include <numeric>
#include <set>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/pool_model.h"
#include "tests/kernels/random_data.h"

namespace assay {
namespace {

// All kernels that have vector code, one after another; results in one row.
std::vector<float> run_everything(DType dtype) {
  CpuOps ops(1);
  std::vector<float> results;
  const auto keep = [&](const std::vector<float>& values) {
    results.insert(results.end(), values.begin(), values.end());
  };
  const int64_t rows = 21, in = 100, out_cols = 37;
  const StoredMatrix w(out_cols, in, dtype, 1), scale(1, in, dtype, 2);
  std::vector<float> x = random_floats(rows * in, 3), normed(rows * in), y(rows * out_cols), gated(rows * in / 2);
  ops.rms_norm(view_of(x, rows, in), scale.view(), 1e-5f, view_of(normed, rows, in));
  const LinearPart part{w.view(), {}};
  ops.linear(view_of(normed, rows, in), {&part, 1}, false, view_of(y, rows, out_cols));
  ops.silu_mul(view_of(x, rows, in), view_of(gated, rows, in / 2));
  keep(normed);
  keep(y);
  keep(gated);

  const AttentionShape shape{6, 2, 20};
  const int32_t tokens = 70;
  std::vector<std::byte> memory(static_cast<size_t>(5 * 2 * ExactRecord::bytes(20, dtype)));
  const PagedKvView cache = exact_view(memory.data(), dtype, 1, 5, 16, 2, 20);
  std::vector<int32_t> positions(tokens), pages(5), owners(tokens), first_row = {0, tokens};
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(pages.begin(), pages.end(), 0);
  BatchView batch;
  batch.num_tokens = tokens;
  batch.num_sequences = 1;
  batch.positions = positions.data();
  batch.sequences = owners.data();
  batch.first_row = first_row.data();
  batch.page_table = pages.data();
  batch.page_table_stride = 5;
  batch.max_context = tokens;
  std::vector<float> qkv = random_floats(tokens * 200, 4), angles = random_floats(tokens * 20, 5), out(tokens * 120);
  ops.qk_norm_rope(shape, {}, {}, 1e-5f, angles.data(), view_of(qkv, tokens, 200));
  ops.kv_write(0, batch, shape, view_of(qkv, tokens, 200), cache);
  ops.attention(0, batch, shape, view_of(qkv, tokens, 200), cache, {}, view_of(out, tokens, 120));
  keep(out);
  return results;
}

// Compressed pools: what attention serves, then what its cells sum.
std::vector<float> run_pool(const PoolCase& c) {
  PoolModel model(c, {200});
  CpuOps ops(1);
  model.run(ops, {{0, 0, 150}});
  model.make_exact(0, 17, 0);
  const PoolModel::Result result = model.run(ops, {{0, 150, 50}});
  std::vector<float> results = result.out;
  for (const kv::MeterCell& cell : result.cells) {
    const kv::MeterSums<float>& sums = cell.conditional;
    results.insert(results.end(), {sums.b1 / sums.weight, sums.b2 / sums.weight, sums.radius_max});
  }
  return results;
}

TEST(Targets, PoolsAgree) {
  using kv::RadiusKind;
  const int64_t supported = hwy::SupportedTargets();
  std::set<std::vector<float>> distinct;
  for (const PoolCase& c :
       {PoolCase{2, 3, 64, 16, DType::kBF16}, PoolCase{1, 5, 128, 32, DType::kF16}, PoolCase{1, 1, 16, 16, DType::kF32},
        PoolCase{2, 2, 64, 16, DType::kBF16, true, true, "certified", RadiusKind::kBoth, DitherStream::kPeriodic},
        PoolCase{2, 3, 128, 16, DType::kBF16, true, true, "witcert", RadiusKind::kDither, DitherStream::kPeriodic, 4},
        PoolCase{1, 3, 64, 16, DType::kBF16, true, true, "observed:rtn-int8"}}) {
    const std::vector<float> best = run_pool(c);
    for (int64_t left = supported; left != 0; left &= left - 1) {
      const int64_t target = left & -left;
      hwy::DisableTargets(~target);
      const std::vector<float> values = run_pool(c);
      hwy::DisableTargets(0);
      distinct.insert(values);
      ASSERT_EQ(values.size(), best.size());
      for (size_t i = 0; i < best.size(); ++i) {
        ASSERT_NEAR(values[i], best[i], 2e-5f * (1.0f + std::abs(best[i]))) << c.name() << hwy::TargetName(target) << i;
      }
    }
  }
  if ((supported & (supported - 1)) != 0) {
    EXPECT_GT(distinct.size(), 6u);
  }
}

TEST(Targets, AllAgree) {
  const int64_t supported = hwy::SupportedTargets();
  std::set<std::vector<float>> distinct;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::vector<float> best = run_everything(dtype);
    for (int64_t left = supported; left != 0; left &= left - 1) {
      const int64_t target = left & -left;
      hwy::DisableTargets(~target);
      const std::vector<float> values = run_everything(dtype);
      hwy::DisableTargets(0);
      distinct.insert(values);
      ASSERT_EQ(values.size(), best.size());
      for (size_t i = 0; i < best.size(); ++i) {
        ASSERT_NEAR(values[i], best[i], 2e-5f * (1.0f + std::abs(best[i]))) << hwy::TargetName(target) << " at " << i;
      }
    }
  }
  // Other lane counts round differently, so this really was other code.
  if ((supported & (supported - 1)) != 0) {
    EXPECT_GT(distinct.size(), 3u);
  }
}

}  // namespace
}  // namespace assay
