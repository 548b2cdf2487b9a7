// Cache writes and attention on the GPU, one case list, each against the CPU twin and float64. Every buffer lies
// between sentinels and starts as poison. Without a CUDA device the cases are skipped by name.
#include <limits>
#include <thread>

#include "tests/gpu/attention_model.h"

namespace assay::testing {
namespace {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

class CudaAttention : public ::testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no CUDA device";
  }
};

double norm(const float* x, int32_t count) {
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

// Rounding of an element of the output.
double output_rounding(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-9 : 0x1p-11;
}

// Relative error of an output: 2e-3 and its own rounding. Prefill rows also carry weights of the activations' dtype
// and, over a compressed prefix, a query of one half: 2^-11 |q| |k| / sqrt(d) of a logit.
double output_tolerance(const AttentionModel& m, bool decode) {
  const double rounding = output_rounding(m.cache.dtype), loud = m.attention_case().loud;
  if (decode) return 2e-3 + rounding;
  const bool one_half = is_compressed(m.cache.format);
  return 2e-3 + 2 * rounding + (one_half ? 0x1p-11 * loud * loud * 2 : 0.0);
}

void expect_near_cpu(const AttentionModel& m, const AttentionModel::Result& result, size_t decodes) {
  const int32_t d = m.shape.head_dim;
  double worst = 0;
  for (size_t at = 0; at < result.gpu.size(); at += static_cast<size_t>(d)) {
    double error = 0;
    for (int32_t c = 0; c < d; ++c) {
      const double e =
          static_cast<double>(result.gpu[at + static_cast<size_t>(c)]) - result.cpu[at + static_cast<size_t>(c)];
      error += e * e;
    }
    const double relative = std::sqrt(error) / norm(result.cpu.data() + at, d);
    const bool decode = at / static_cast<size_t>(m.shape.num_heads * d) < decodes;
    ASSERT_LE(relative, output_tolerance(m, decode))
        << "row " << at / static_cast<size_t>(m.shape.num_heads * d) << " head "
        << at / static_cast<size_t>(d) % static_cast<size_t>(m.shape.num_heads);
    worst = std::max(worst, relative);
  }
  ::testing::Test::RecordProperty("worst_output_error", std::to_string(worst));
}

void expect_near_truth(const AttentionModel& m, const AttentionModel::Result& result, const Truth& truth, size_t row,
                       int32_t head, bool decode = true) {
  const int32_t d = m.shape.head_dim;
  const size_t at = (row * static_cast<size_t>(m.shape.num_heads) + static_cast<size_t>(head)) * static_cast<size_t>(d);
  double error = 0, total = 0;
  for (int32_t c = 0; c < d; ++c) {
    const double e = result.gpu[at + static_cast<size_t>(c)] - truth.out[static_cast<size_t>(c)];
    error += e * e;
    total += truth.out[static_cast<size_t>(c)] * truth.out[static_cast<size_t>(c)];
  }
  ASSERT_LE(std::sqrt(error / total), output_tolerance(m, decode)) << "row " << row << " head " << head;
}

constexpr kv::BoundKind kBounds[] = {kv::BoundKind::kBest, kv::BoundKind::kBox, kv::BoundKind::kEForm,
                                     kv::BoundKind::kTanh};

// The sums are those of float64 to 1e-4 (`looser`: radii may be so much larger), and no bound is below.
void expect_sound_cell(const kv::MeterCell& cell, const Truth& truth, int32_t stored, double looser) {
  ASSERT_EQ(cell.compressed_tokens, stored);
  const kv::MeterSums<float>& sums = cell.certain;
  const double shift = std::exp(static_cast<double>(sums.logit_max) - truth.sums.logit_max);
  ASSERT_NEAR(sums.weight * shift / truth.sums.weight, 1.0, 1e-3 + 0.1 * looser);  // e^x of logits with their rounding
  const double b1 = sums.b1 / sums.weight, expected = truth.sums.b1 / truth.sums.weight;
  const double b2 = sums.b2 / sums.weight, expected2 = truth.sums.b2 / truth.sums.weight;
  const double slack = (1e-4 + looser) * (1 + truth.sums.radius_max);
  ASSERT_LE(std::abs(b1 - expected), slack * expected + 1e-6);
  ASSERT_LE(std::abs(b2 - expected2), 2.5 * slack * expected2 + 1e-6);
  ASSERT_NEAR(sums.radius_max, truth.sums.radius_max, (1e-4 + looser) * truth.sums.radius_max + 1e-4);
  ASSERT_NEAR(sums.value_error / sums.weight, truth.sums.value_error / truth.sums.weight,
              (1e-4 + 0.02 * looser) * truth.sums.value_error / truth.sums.weight + 1e-12);
  const kv::MeterInputs<float> in = kv::meter_inputs(sums, cell.serial_terms);
  const kv::MeterInputs<double> exact = kv::meter_inputs(truth.sums, 1);
  for (kv::BoundKind kind : kBounds) {
    const kv::Meter<float> meter = kv::meter(in, kind, cell.weight_rounding);
    ASSERT_GE(meter.tv, truth.tv) << static_cast<int>(kind);
    const kv::Meter<double> expected_meter = kv::meter(exact, kind, 0.0);
    ASSERT_GE(meter.tv, expected_meter.tv * (1 - 1e-9)) << static_cast<int>(kind);
  }
  if (stored > 0) {
    ASSERT_LE(cell.value_norm_low, truth.largest_value);
    ASSERT_GE(cell.value_norm_low, truth.largest_value * (1 - 0x1p-9));
  }
}

// Rows written on the GPU are those of the CPU: bytes and scales exactly, bounds to one step of their halves.
void expect_same_pool(const AttentionModel& m, const std::vector<int32_t>& written) {
  std::vector<std::byte> records;
  std::vector<uint16_t> norms;
  m.download_pool(records, norms);
  PagedKvView gpu = m.cache, cpu = m.cache;
  gpu.base = records.data();
  gpu.tables.value_norms = norms.data();
  const int32_t d = m.shape.head_dim;
  int64_t bounds_off = 0;
  for (size_t s = 0; s < written.size(); ++s) {
    for (int32_t h = 0; h < m.shape.num_kv_heads; ++h) {
      for (int32_t t = 0; t < written[s]; ++t) {
        const int32_t* pages = m.pages_of(static_cast<int32_t>(s));
        const uint8_t* a = reinterpret_cast<const uint8_t*>(gpu.record_of(AttentionModel::kLayer, pages, h, t));
        const uint8_t* b = reinterpret_cast<const uint8_t*>(cpu.record_of(AttentionModel::kLayer, pages, h, t));
        const int32_t token = t % kTileTokens, side = kv::value_side_index(token);
        if (!is_compressed(m.cache.format)) {
          const uint16_t *x = reinterpret_cast<const uint16_t*>(a), *y = reinterpret_cast<const uint16_t*>(b);
          for (int32_t c = 0; c < d; ++c) {
            ASSERT_EQ(x[ExactRecord::k_index(c, token)], y[ExactRecord::k_index(c, token)])
                << s << " " << h << " " << t;
            ASSERT_EQ(x[ExactRecord::v_index(d, c, token)], y[ExactRecord::v_index(d, c, token)])
                << s << " " << h << " " << t;
          }
          continue;
        }
        for (int32_t c = 0; c < d; ++c) {
          ASSERT_EQ(a[kv::key_fragment_index(token, c, d)], b[kv::key_fragment_index(token, c, d)])
              << s << " " << h << " " << t << " " << c;
          const int64_t v = CertifiedRecord::v_payload(d) + kv::value_fragment_index(token, c, d);
          ASSERT_EQ(a[v], b[v]) << s << " " << h << " " << t << " " << c;
        }
        const auto half = [](const uint8_t* record, int64_t offset, int32_t i) {
          return reinterpret_cast<const uint16_t*>(record + offset)[i];
        };
        ASSERT_EQ(half(a, CertifiedRecord::k_scales(d), token), half(b, CertifiedRecord::k_scales(d), token));
        ASSERT_EQ(half(a, CertifiedRecord::v_scales(d), side), half(b, CertifiedRecord::v_scales(d), side));
        const int witness = half(a, CertifiedRecord::witness(d), token) - half(b, CertifiedRecord::witness(d), token);
        const int rho = half(a, CertifiedRecord::rho(d), side) - half(b, CertifiedRecord::rho(d), side);
        ASSERT_LE(std::abs(witness), 1);
        ASSERT_LE(std::abs(rho), 1);
        bounds_off += witness != 0 || rho != 0;
        if (t % m.cache.page_tokens == 0) {
          const int32_t page = pages[t / m.cache.page_tokens];
          ASSERT_EQ(gpu.value_norms(AttentionModel::kLayer, h)[page], cpu.value_norms(AttentionModel::kLayer, h)[page]);
        }
      }
    }
  }
  ::testing::Test::RecordProperty("bounds_off_by_one", std::to_string(bounds_off));
}

std::vector<std::byte> records_of(const AttentionModel& m) {
  std::vector<std::byte> records;
  std::vector<uint16_t> norms;
  m.download_pool(records, norms);
  return records;
}

// Prefill in chunks, alone and beside decodes, then decodes of mixed lengths.
TEST_P(CudaAttention, SessionMatchesTheCpuAndFloat64) {
  const std::vector<int32_t> lengths = {70, 700, 17, 1, 333, 16};
  AttentionModel m(GetParam(), lengths);
  CpuOps cpu(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  struct Cell {
    int32_t row, sequence, position, stored;
  };
  struct Step {
    std::vector<AttentionModel::Slice> slices;
    std::vector<Cell> cells;
  };
  const std::vector<Step> steps = {
      {{{1, 0, 600}, {0, 0, 37}, {2, 0, 15}}, {{599, 1, 599, 0}, {620, 0, 20, 0}}},
      {{{1, 600, 1}, {3, 0, 1}, {0, 37, 32}, {4, 0, 332}, {5, 0, 15}},
       {{0, 1, 600, 600}, {1, 3, 0, 0}, {2, 0, 37, 37}, {17, 0, 52, 37}, {33, 0, 68, 37}}},
      {{{0, 69, 1}, {1, 601, 1}, {2, 15, 1}, {4, 332, 1}, {5, 15, 1}},
       {{0, 0, 69, 69}, {1, 1, 601, 601}, {2, 2, 15, 15}, {3, 4, 332, 332}, {4, 5, 15, 15}}},
      {{{2, 16, 1}, {1, 602, 98}}, {{0, 2, 16, 16}, {1, 1, 602, 602}, {50, 1, 651, 602}, {98, 1, 699, 602}}},
  };
  const bool compressed = is_compressed(m.cache.format);
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const AttentionModel::Result result = m.run(steps[i].slices, &cpu);
    size_t decodes = 0;
    while (decodes < steps[i].slices.size() && steps[i].slices[decodes].count == 1) ++decodes;
    expect_near_cpu(m, result, decodes);
    const TruthReader truth(m, records_of(m));
    for (const Cell& cell : steps[i].cells) {
      for (int32_t h = 0; h < m.shape.num_heads; ++h) {
        const Truth expected = truth.of(cell.sequence, cell.position, h, cell.stored);
        SCOPED_TRACE("position " + std::to_string(cell.position));
        const bool decode = static_cast<size_t>(cell.row) < decodes;
        expect_near_truth(m, result, expected, static_cast<size_t>(cell.row), h, decode);
        if (!compressed) continue;
        // A prefill row's query is one half, whose rounding widens the radii.
        expect_sound_cell(result.cells[static_cast<size_t>(cell.row * m.shape.num_heads + h)], expected, cell.stored,
                          decode || cell.stored == 0 ? 0 : 0.25);
      }
    }
    if (HasFatalFailure()) return;
  }
  expect_same_pool(m, lengths);
}

// The same batch gives the same bits.
TEST_P(CudaAttention, RepeatsItself) {
  AttentionModel m(GetParam(), {900, 64, 2100});
  m.fill({{0, 0, 850}, {1, 0, 63}, {2, 0, 2000}}, nullptr);
  const std::vector<AttentionModel::Slice> slices = {{1, 63, 1}, {2, 2000, 1}, {0, 850, 50}};
  const AttentionModel::Result first = m.run(slices, nullptr);
  const AttentionModel::Result second = m.run(slices, nullptr);
  EXPECT_EQ(first.gpu, second.gpu);
  EXPECT_EQ(std::memcmp(first.cells.data(), second.cells.data(),
                        is_compressed(m.cache.format) ? first.cells.size() * sizeof(kv::MeterCell) : 0),
            0);
}

const AttentionCase kCases[] = {
    {2, 4, 128, 16, DType::kBF16, KvFormat::kExact},
    {1, 7, 64, 32, DType::kF16, KvFormat::kExact},
    {3, 1, 64, 48, DType::kBF16, KvFormat::kExact},
    {2, 16, 128, 16, DType::kF16, KvFormat::kExact},
    {1, 5, 128, 16, DType::kBF16, KvFormat::kExact, 3.0f},
    {2, 4, 128, 16, DType::kBF16, KvFormat::kCertified},
    {1, 7, 64, 32, DType::kF16, KvFormat::kCertified},
    {3, 1, 64, 48, DType::kBF16, KvFormat::kCertified},
    {2, 16, 128, 16, DType::kF16, KvFormat::kCertified},
    {4, 2, 128, 16, DType::kF16, KvFormat::kCertified},
    {1, 12, 64, 16, DType::kBF16, KvFormat::kCertified},
    {1, 5, 128, 16, DType::kBF16, KvFormat::kCertified, 3.0f},
    {2, 3, 128, 16, DType::kBF16, KvFormat::kCertified, 1.0f, false},
    {8, 8, 128, 16, DType::kBF16, KvFormat::kCertified, 1.5f},
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttention, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name(); });

// What compute-sanitizer runs (tests/gpu/run).
const AttentionCase kSmallest[] = {
    {1, 1, 64, 16, DType::kBF16, KvFormat::kExact},
    {1, 2, 64, 16, DType::kBF16, KvFormat::kCertified},
};
INSTANTIATE_TEST_SUITE_P(Smallest, CudaAttention, ::testing::ValuesIn(kSmallest),
                         [](const auto& info) { return info.param.name(); });

// Decode alone: one length and batch after another.
struct DecodeCase {
  AttentionCase attention;
  int32_t batch, length;
};
class CudaDecode : public ::testing::TestWithParam<DecodeCase> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(CudaDecode, MatchesFloat64) {
  const DecodeCase& c = GetParam();
  std::vector<int32_t> lengths;
  for (int32_t s = 0; s < c.batch; ++s)
    lengths.push_back(s % 3 == 0 ? c.length + 1 : s % 3 == 1 ? c.length / 2 + 1 : 1 + (s * 37) % (c.length + 1));
  AttentionModel m(c.attention, lengths);
  for (int32_t s = 0; s < c.batch; ++s) {
    for (int32_t at = 0; at + 1 < lengths[static_cast<size_t>(s)]; at += 16384) {
      m.fill({{s, at, std::min(16384, lengths[static_cast<size_t>(s)] - 1 - at)}}, nullptr);
    }
  }
  std::vector<AttentionModel::Slice> slices;
  for (int32_t s = 0; s < c.batch; ++s) slices.push_back({s, lengths[static_cast<size_t>(s)] - 1, 1});
  const AttentionModel::Result result = m.run(slices, nullptr);
  const TruthReader truth(m, records_of(m));
  for (int32_t s = 0; s < c.batch; s += std::max(1, c.batch / 7)) {
    for (int32_t h = 0; h < m.shape.num_heads; h += std::max(1, m.shape.num_heads / 3)) {
      const int32_t position = lengths[static_cast<size_t>(s)] - 1;
      const Truth expected = truth.of(s, position, h, position);
      SCOPED_TRACE("sequence " + std::to_string(s) + " head " + std::to_string(h) + " position " +
                   std::to_string(position));
      expect_near_truth(m, result, expected, static_cast<size_t>(s), h);
      if (is_compressed(m.cache.format)) {
        expect_sound_cell(result.cells[static_cast<size_t>(s * m.shape.num_heads + h)], expected, position, 0);
      }
    }
  }
}

const DecodeCase kDecodeCases[] = {
    {{1, 2, 128, 16, DType::kBF16, KvFormat::kCertified}, 1, 131072},
    {{1, 2, 128, 16, DType::kBF16, KvFormat::kExact}, 1, 131072},
    {{2, 7, 128, 16, DType::kBF16, KvFormat::kCertified}, 4, 16384},
    {{8, 4, 128, 16, DType::kBF16, KvFormat::kCertified}, 16, 2048},
    {{8, 4, 128, 16, DType::kBF16, KvFormat::kExact}, 16, 2048},
    {{2, 4, 64, 16, DType::kF16, KvFormat::kCertified}, 512, 200},
    {{2, 4, 64, 16, DType::kF16, KvFormat::kExact}, 512, 200},
    {{1, 4, 128, 16, DType::kBF16, KvFormat::kCertified}, 512, 64},
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaDecode, ::testing::ValuesIn(kDecodeCases), [](const auto& info) {
  return info.param.attention.name() + "_b" + std::to_string(info.param.batch) + "_s" +
         std::to_string(info.param.length);
});

// A sink of weight one before a long tail of small weights whose halves would be zero: the tail must not vanish.
TEST(CudaDecodeExtremes, SmallWeightsKeepTheirSum) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  for (KvFormat format : {KvFormat::kCertified, KvFormat::kExact}) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      AttentionModel m({1, 1, 128, 16, dtype, format, 1.0f, false}, {60001});
      const int32_t columns = m.shape.qkv_columns();
      uint16_t* rows = const_cast<uint16_t*>(m.row(0, 0, 0));
      const float sink = 12.75f;  // logit of token 0; e^-12.75 = 2.9e-6 for the others, 15 % of the mass together
      for (int32_t t = 0; t < 60001; ++t) {
        uint16_t* row = rows + static_cast<int64_t>(t) * columns;
        std::fill_n(row, columns, uint16_t{0});
        row[0] = bits_of(dtype, std::sqrt(128.0f));
        row[128] = bits_of(dtype, t == 0 ? sink : 0.0f);
        row[256 + (t == 0 ? 0 : 1)] = bits_of(dtype, t == 0 ? 1.0f : 0.5f);
      }
      for (int32_t at = 0; at < 60000; at += 15000) m.fill({{0, at, 15000}}, nullptr);
      const AttentionModel::Result result = m.run({{0, 60000, 1}}, nullptr);
      const Truth expected = TruthReader(m, records_of(m)).of(0, 60000, 0, 60000);
      ASSERT_GT(expected.out[1], 0.05);
      EXPECT_NEAR(result.gpu[1], expected.out[1], 4e-3 * expected.out[1]);
      EXPECT_NEAR(result.gpu[0], expected.out[0], 4e-3 * expected.out[0]);
    }
  }
}

// A row too large for the pool is exact-only: nothing that reads it is certified.
TEST(CudaDecodeExtremes, ExactOnlyRowsSaturate) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  AttentionModel m({2, 3, 128, 16, DType::kBF16, KvFormat::kCertified}, {60});
  const_cast<uint16_t*>(m.row(0, 5, m.shape.num_heads))[0] = bits_of(DType::kBF16, 1e12f);
  m.fill({{0, 0, 39}}, nullptr);
  const AttentionModel::Result decode = m.run({{0, 39, 1}}, nullptr);
  const AttentionModel::Result prefill = m.run({{0, 40, 2}}, nullptr);
  for (const AttentionModel::Result* result : {&decode, &prefill}) {
    for (int32_t h = 0; h < 6; ++h) {
      const kv::MeterCell& cell = result->cells[static_cast<size_t>(h)];
      const kv::CellVerdict verdict = kv::judge_cell(cell, {}, kv::BoundKind::kBest, kv::RadiusKind::kWitness);
      EXPECT_EQ(std::isinf(verdict.meter.raw), h < 3) << h;  // the KV head that holds it
      EXPECT_EQ(verdict.meter.tv == 1.0f, h < 3) << h;
    }
  }
}

// Tallies of random cells: those of the CPU, sums of floats to their order.
TEST(CudaFold, MatchesTheCpu) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int32_t kLayers = 2, kHeads = 40, kSequences = 45, kLayer = 1;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  std::vector<kv::MeteredRow> rows;
  for (int32_t s = 0; s < kSequences; ++s) {
    const int32_t count = s % 9 == 0 ? 40 : 1;
    for (int32_t i = 0; i < count; ++i) {
      rows.push_back(
          {static_cast<int32_t>(rows.size()), s, 100 + i, count == 1 ? kv::Phase::kDecode : kv::Phase::kPrefill});
    }
  }
  std::vector<kv::MeterCell> cells(rows.size() * kHeads);
  for (kv::MeterCell& cell : cells) {
    const float c = std::exp2(-8.0f + 10.0f * uniform(random));
    for (int t = 0; t < 20; ++t)
      kv::add_token(cell.certain, 6.0f * uniform(random), c * uniform(random), 0.05f * uniform(random));
    if (uniform(random) < 0.02f) cell.certain.b1 = std::numeric_limits<float>::infinity();
    cell.conditional = cell.certain;
    cell.value_norm_low = uniform(random) < 0.02f ? 0.0f : 0.5f + uniform(random);
    cell.compressed_tokens = uniform(random) < 0.1f ? 0 : 20;
    cell.serial_terms = 100;
  }
  std::vector<kv::MeterThresholds> thresholds(kSequences);
  std::vector<kv::SequenceMeter> sequences(kSequences);
  std::vector<kv::HeadMeter> heads(kLayers * kHeads);
  std::vector<kv::CellVerdict> verdicts(cells.size());
  DeviceArray<kv::MeteredRow> d_rows(rows);
  DeviceArray<kv::MeterCell> d_cells(cells);
  DeviceArray<kv::MeterThresholds> d_thresholds(thresholds);
  DeviceArray<kv::SequenceMeter> d_sequences(sequences);
  DeviceArray<kv::HeadMeter> d_heads(heads);
  DeviceArray<kv::CellVerdict> d_verdicts(cells.size());
  kv::MeterView meter;
  meter.num_metered = static_cast<int32_t>(rows.size());
  meter.num_heads = kHeads;
  meter.first_head = 80;
  meter.rows = rows.data();
  meter.thresholds = thresholds.data();
  meter.cells = cells.data();
  meter.verdicts = verdicts.data();
  meter.sequences = sequences.data();
  meter.heads = heads.data();
  CpuOps cpu(4);
  kv::MeterView gpu = meter;
  gpu.rows = d_rows.data();
  gpu.thresholds = d_thresholds.data();
  gpu.cells = d_cells.data();
  gpu.verdicts = d_verdicts.data();
  gpu.sequences = d_sequences.data();
  gpu.heads = d_heads.data();
  CudaContext context;
  ASSAY_CUDA_CHECK(cudaStreamCreate(&context.stream));
  for (int twice = 0; twice < 2; ++twice) {
    cpu.fold_meters(kLayer, meter);
    launch_fold_meters(context, kLayer, gpu);
  }
  ASSAY_CUDA_CHECK(context.first_error);
  ASSAY_CUDA_CHECK(cudaStreamSynchronize(context.stream));
  ASSAY_CUDA_CHECK(cudaStreamDestroy(context.stream));

  const std::vector<kv::SequenceMeter> got = d_sequences.download();
  for (int32_t s = 0; s < kSequences; ++s) {
    const size_t i = static_cast<size_t>(s);
    EXPECT_EQ(std::memcmp(got[i].cells, sequences[i].cells, sizeof got[i].cells), 0) << s;
    for (int phase = 0; phase < kv::kNumPhases; ++phase) {
      EXPECT_EQ(got[i].worst[phase].head, sequences[i].worst[phase].head);
      EXPECT_EQ(got[i].worst[phase].position, sequences[i].worst[phase].position);
      EXPECT_EQ(got[i].worst_value[phase].head, sequences[i].worst_value[phase].head);
      if (std::isfinite(sequences[i].worst[phase].raw)) {
        EXPECT_NEAR(got[i].worst[phase].raw, sequences[i].worst[phase].raw, 1e-5 * sequences[i].worst[phase].raw);
      }
    }
  }
  const std::vector<kv::HeadMeter> got_heads = d_heads.download();
  for (size_t h = 0; h < got_heads.size(); ++h) {
    for (int phase = 0; phase < kv::kNumPhases; ++phase) {
      EXPECT_EQ(got_heads[h].metered[phase], heads[h].metered[phase]);
      EXPECT_EQ(got_heads[h].over_tau[phase], heads[h].over_tau[phase]);
      EXPECT_EQ(got_heads[h].saturated[phase], heads[h].saturated[phase]);
      EXPECT_EQ(got_heads[h].overflow[phase], heads[h].overflow[phase]);
      EXPECT_NEAR(got_heads[h].tv_sum[phase], heads[h].tv_sum[phase], 1e-5 * heads[h].tv_sum[phase]);
      EXPECT_NEAR(got_heads[h].value_sum[phase], heads[h].value_sum[phase], 1e-5 * heads[h].value_sum[phase]);
      EXPECT_EQ(
          std::memcmp(got_heads[h].tv_buckets[phase], heads[h].tv_buckets[phase], sizeof heads[h].tv_buckets[phase]),
          0);
      EXPECT_EQ(std::memcmp(got_heads[h].value_buckets[phase], heads[h].value_buckets[phase],
                            sizeof heads[h].value_buckets[phase]),
                0);
    }
    EXPECT_NEAR(got_heads[h].worst, heads[h].worst, 1e-6);
  }
}

}  // namespace
}  // namespace assay::testing
