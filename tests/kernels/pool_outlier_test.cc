// One key channel of one KV head a hundred times larger, and the queries' smaller by as much: the same logits. Schemes
// that only round are hit, and the meter says so on that head's queries and on no other; balance and bypass are not
// hit.
#include "tests/kernels/pool_truth.h"

namespace assay {
namespace {

constexpr int32_t kTokens = 300, kOutlierHead = 1, kOutlierChannel = 3;
constexpr float kOutlier = 100.0f;

// Largest bound per KV head over some decode positions.
std::vector<float> worst_bounds(const PoolCase& c, bool outlier) {
  PoolModel m(c, {kTokens});
  const int32_t columns = m.shape.qkv_columns(), d = c.dim;
  for (int32_t t = 0; outlier && t < kTokens; ++t) {
    float* row = m.qkv[0].data() + t * columns;
    for (int32_t g = 0; g < c.group; ++g) row[(kOutlierHead * c.group + g) * d + kOutlierChannel] /= kOutlier;
    row[(m.shape.num_heads + kOutlierHead) * d + kOutlierChannel] *= kOutlier;
  }
  std::vector<float> lambda(static_cast<size_t>(c.kv_heads * d), 1.0f);
  if (outlier) lambda[kOutlierHead * d + kOutlierChannel] = kOutlier;
  if (c.balance) m.set_balance(lambda);
  CpuOps ops(1);
  m.run(ops, {{0, 0, kTokens - 10}});
  const PoolModel::Result result = m.run(ops, {{0, kTokens - 10, 10}});
  std::vector<float> worst(static_cast<size_t>(c.kv_heads));
  for (size_t i = 0; i < result.cells.size(); ++i) {
    const kv::MeterCell& cell = result.cells[i];
    const kv::MeterSums<float>& sums = c.radius == kv::RadiusKind::kWitness ? cell.certain : cell.conditional;
    const float tv =
        kv::meter(kv::meter_inputs(sums, cell.serial_terms), kv::BoundKind::kBest, cell.weight_rounding).tv;
    float& head = worst[static_cast<size_t>(m.kv_head(static_cast<int32_t>(i) % m.shape.num_heads))];
    head = std::max(head, tv);
  }
  return worst;
}

struct OutlierCase {
  PoolCase pool;
  bool rises;
};

class PoolOutlier : public testing::TestWithParam<OutlierCase> {};

TEST_P(PoolOutlier, ShowsOnThatHeadAlone) {
  const std::vector<float> without = worst_bounds(GetParam().pool, false), with = worst_bounds(GetParam().pool, true);
  ASSERT_LT(without[0], 0.5f);
  EXPECT_NEAR(with[0], without[0], 1e-3f * without[0]);
  if (GetParam().rises)
    EXPECT_GT(with[kOutlierHead], 2 * without[kOutlierHead]);
  else
    EXPECT_NEAR(with[kOutlierHead], without[kOutlierHead], 0.05f * without[kOutlierHead]);
}

using kv::RadiusKind;

INSTANTIATE_TEST_SUITE_P(
    Pools, PoolOutlier,
    testing::Values(OutlierCase{{2, 2, 128, 16, DType::kF32, false, true, "observed:rtn-int8"}, true},
                    OutlierCase{{2, 2, 128, 16, DType::kF32, false, true, "observed:rtn-int8-tensor"}, true},
                    OutlierCase{{2, 2, 128, 16, DType::kF32, false, true, "witcert", RadiusKind::kDither,
                                 DitherStream::kPeriodic},
                                true},
                    // channel 3 of the second head is among its bypassed pairs
                    OutlierCase{{2, 2, 128, 16, DType::kF32, false, true, "witcert", RadiusKind::kDither,
                                 DitherStream::kPeriodic, 4},
                                false},
                    OutlierCase{{2, 2, 128, 16, DType::kF32, false, true, "certified"}, true},
                    OutlierCase{{2, 2, 128, 16, DType::kF32, true, true, "certified"}, false}),
    [](const auto& info) { return info.param.pool.name(); });

}  // namespace
}  // namespace assay
