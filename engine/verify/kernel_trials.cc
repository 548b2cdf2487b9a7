// This machine's attention over every compressed pool against exact attention in double: the output of every metered
// head must lie within what its own meter allows, |y - y^| <= 2 TV max|v| + value error. Rows and queries do not know
// the dither, so its radius is held to the same: at this kappa a violation by chance has probability 1e-12 a head.
#include <cmath>
#include <cstdlib>

#include "cache/pool/pool_layout.h"
#include "engine/verify/rows.h"
#include "engine/verify/tally.h"
#include "kernels/cpu/cpu_ops.h"

namespace assay {
namespace {

constexpr int32_t kKvHeads = 2, kGroup = 2, kHeads = kKvHeads * kGroup, kPageTokens = 32;
constexpr double kDelta = 1e-12;

struct TriedPool {
  const char* name;
  const char* layout;
  kv::RadiusKind radius = kv::RadiusKind::kWitness;
  DitherStream stream = DitherStream::kNone;
  int32_t outlier_pairs = 0;
};

constexpr TriedPool kTriedPools[] = {
    {"kernel.certified", "certified"},
    {"kernel.certified.both", "certified", kv::RadiusKind::kBoth, DitherStream::kPeriodic},
    {"kernel.certified.dither", "certified", kv::RadiusKind::kDither, DitherStream::kPerSlot},
    {"kernel.witcert", "witcert", kv::RadiusKind::kDither, DitherStream::kPeriodic},
    {"kernel.witcert.m4", "witcert", kv::RadiusKind::kDither, DitherStream::kPeriodic, 4},
    {"kernel.rtn-int8", "observed:rtn-int8"},
    {"kernel.rtn-int8-tensor", "observed:rtn-int8-tensor"},
    {"kernel.fp8-e4m3", "observed:fp8-e4m3"},
    {"kernel.rtn-int4", "observed:rtn-int4"},
    {"kernel.kivi-2", "observed:kivi-2"},
    {"kernel.kvquant-4", "observed:kvquant-4"},
    {"kernel.stochastic-int8", "observed:stochastic-int8"},
    {"kernel.identity", "observed:identity"}};

// One sequence of random rows, stored but for its last position, which is the query.
class Cell {
 public:
  Cell(const TriedPool& pool, TrialRandom& random, int32_t head_dim, int32_t tokens) : tokens_(tokens), pool_(pool) {
    shape_ = {.num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = head_dim};
    fill_rows(random);
    for (int32_t h = 0; h < kKvHeads; ++h) {
      for (const float lambda : hostile_lambda(random, head_dim)) lambda_.push_back(lambda);
    }
    signs_.resize(static_cast<size_t>(head_dim));
    kv::rotation_signs(head_dim, signs_.data());
    make_view();
    make_tables(random);
  }

  void run(Ops& ops) {
    const std::vector<int32_t> first_stored{0, tokens_ - 1}, first_query{0, 1};
    const BatchView stored = batch(0, tokens_ - 1, first_stored), query = batch(tokens_ - 1, 1, first_query);
    ops.kv_write(0, stored, shape_, rows_from(0, tokens_ - 1), view_);
    ops.attention(
        0, query, shape_, rows_from(tokens_ - 1, 1), view_, meter(),
        {output_.data(), DType::kF32, 1, static_cast<int64_t>(output_.size()), static_cast<int64_t>(output_.size())});
    ops.fold_meters(0, meter());
  }

  void check(int32_t head, VerifyCheck& check) const {
    const kv::CellVerdict& verdict = verdicts_[static_cast<size_t>(head)];
    const kv::MeterCell& cell = cells_[static_cast<size_t>(head)];
    if (verdict.label == kv::CellLabel::kExact) return;  // nothing compressed was read
    double largest = 0;
    std::vector<double> difference = exact_output(head, largest);
    for (int32_t c = 0; c < shape_.head_dim; ++c) difference[c] -= output_[head * shape_.head_dim + c];
    const long double value_error = static_cast<long double>(verdict.value) * cell.value_norm_low;
    count(check, norm(difference), 2.0L * verdict.meter.tv * largest + value_error);
  }

 private:
  int32_t columns() const { return shape_.qkv_columns(); }
  const float* row(int32_t token, int32_t head) const { return &rows_[token * columns() + head * shape_.head_dim]; }

  // Queries long enough for peaked weights; in every fourth sequence some channels are massive.
  void fill_rows(TrialRandom& random) {
    rows_.resize(static_cast<size_t>(tokens_) * columns());
    const double query_size = 0.5 + 3 * random.uniform();
    const bool massive = random.below(4) == 0;
    for (int32_t t = 0; t < tokens_; ++t) {
      for (int32_t c = 0; c < columns(); ++c) {
        double x = random.normal() * (c < kHeads * shape_.head_dim ? query_size : 1.0);
        if (massive && c % 29 == 3) x *= 20;
        rows_[static_cast<size_t>(t) * columns() + c] = static_cast<float>(x);
      }
    }
  }

  void make_view() {
    const int32_t pages = (tokens_ + kPageTokens - 1) / kPageTokens;
    for (int32_t page = 0; page < pages; ++page) pages_.push_back(pages - 1 - page);
    for (int32_t t = 0; t < tokens_; ++t) positions_.push_back(t);
    owners_.assign(static_cast<size_t>(tokens_), 0);
    const auto layout = make_pool_layout(pool_.layout, {1, kKvHeads, shape_.head_dim, kPageTokens, DType::kF32},
                                         {.outlier_pairs = pool_.outlier_pairs});
    if (!layout.ok()) std::abort();  // shapes are ours
    memory_.resize(static_cast<size_t>(pages * layout->bytes_per_page()) / sizeof(uint16_t));
    view_ = layout->view(memory_.data(), pages);
    output_.resize(static_cast<size_t>(kHeads) * shape_.head_dim);
    thresholds_.kappa = kv::dither_kappa(tokens_, kDelta);
    metered_ = {.row = 0, .sequence = 0, .position = tokens_ - 1, .phase = kv::Phase::kDecode};
  }

  void make_tables(TrialRandom& random) {
    KvPoolTables& tables = view_.tables;
    value_norms_.assign(static_cast<size_t>(kKvHeads * view_.num_pages), 0);
    tables.value_norms = value_norms_.data();
    tables.seed = random.below(UINT64_MAX);
    if (view_.format == KvFormat::kCertified) {
      tables.signs = signs_.data();
      tables.lambda = lambda_.data();
    }
    scales_.assign(kKvHeads, 4.0f / 127);
    tables.key_scale = tables.value_scale = scales_.data();
    tables.dither_stream = pool_.stream;
    for (int32_t i = 0; i < kKvHeads * shape_.head_dim && pool_.stream == DitherStream::kPeriodic; ++i) {
      for (uint32_t row = 0; row < kv::kDitherPeriod; ++row) {
        const auto head = static_cast<uint32_t>(i / shape_.head_dim),
                   channel = static_cast<uint32_t>(i % shape_.head_dim);
        dither_.push_back(kv::dither_at(tables.seed, 0, head, row, channel));
      }
    }
    tables.dither = dither_.data();
    for (int32_t i = 0; i < kKvHeads * 2 * pool_.outlier_pairs; ++i) {
      bypass_.push_back(static_cast<uint16_t>(i % (2 * pool_.outlier_pairs) * 3 % shape_.head_dim));
    }
    if (!bypass_.empty()) tables.bypass = bypass_.data();
    if (view_.record_tokens > kTileTokens) make_filling_page();
  }

  // The page that stays part full has exact rows.
  void make_filling_page() {
    slots_.assign(static_cast<size_t>(kKvHeads * view_.num_pages), -1);
    exact_rows_.resize(static_cast<size_t>(kKvHeads * view_.exact_slot_bytes()));
    view_.exact = {exact_rows_.data(), slots_.data()};
    if ((tokens_ - 1) % kPageTokens == 0) return;
    const int32_t page = pages_[static_cast<size_t>((tokens_ - 1) / kPageTokens)];
    for (int32_t h = 0; h < kKvHeads; ++h) slots_[static_cast<size_t>(view_.exact_key(0, h, page))] = h;
  }

  BatchView batch(int32_t first, int32_t count, const std::vector<int32_t>& first_row) const {
    return {.num_tokens = count,
            .num_sequences = 1,
            .positions = positions_.data() + first,
            .sequences = owners_.data(),
            .first_row = first_row.data(),
            .page_table = pages_.data(),
            .page_table_stride = static_cast<int32_t>(pages_.size()),
            .max_context = first + count};
  }

  ConstTensor rows_from(int32_t first, int32_t count) const {
    return {rows_.data() + static_cast<size_t>(first) * columns(), DType::kF32, count, columns(), columns()};
  }

  kv::MeterView meter() {
    return {.num_metered = 1,
            .num_heads = kHeads,
            .radius = pool_.radius,
            .cell_of_row = &cell_of_row_,
            .rows = &metered_,
            .thresholds = &thresholds_,
            .cells = cells_,
            .verdicts = verdicts_,
            .sequences = &sequence_,
            .heads = heads_};
  }

  std::vector<double> exact_output(int32_t head, double& largest_value) const {
    const int32_t d = shape_.head_dim, kv_head = head / kGroup;
    std::vector<long double> weights;
    long double total = 0;
    for (int32_t t = 0; t < tokens_; ++t) {
      long double logit = 0;
      for (int32_t c = 0; c < d; ++c) {
        logit += static_cast<long double>(row(tokens_ - 1, head)[c]) * row(t, kHeads + kv_head)[c];
      }
      weights.push_back(std::exp(logit / std::sqrt(static_cast<long double>(d))));
      total += weights.back();
    }
    std::vector<double> output(static_cast<size_t>(d));
    for (int32_t t = 0; t < tokens_; ++t) {
      const float* value = row(t, kHeads + kKvHeads + kv_head);
      for (int32_t c = 0; c < d; ++c) output[c] += static_cast<double>(weights[t] / total * value[c]);
      largest_value = std::max(largest_value, static_cast<double>(norm(std::vector<double>(value, value + d))));
    }
    return output;
  }

  const int32_t tokens_;
  const TriedPool& pool_;
  AttentionShape shape_;
  std::vector<float> rows_, lambda_, signs_, output_, scales_, dither_;
  std::vector<int32_t> pages_, positions_, owners_, slots_;
  std::vector<uint16_t> memory_, value_norms_, bypass_;
  std::vector<std::byte> exact_rows_;
  PagedKvView view_;
  kv::MeteredRow metered_;
  kv::MeterThresholds thresholds_;
  int32_t cell_of_row_ = 0;
  kv::MeterCell cells_[kHeads];
  kv::CellVerdict verdicts_[kHeads];
  kv::SequenceMeter sequence_;
  kv::HeadMeter heads_[kHeads];
};

}  // namespace

std::vector<VerifyCheck> verify_kernels(const VerifyOptions& options) {
  std::vector<VerifyCheck> checks;
  TrialRandom random(options.seed + 3);
  CpuOps ops(1);
  const int64_t trials = std::max<int64_t>(options.trials / 1000, 1);
  for (const TriedPool& pool : kTriedPools) {
    VerifyCheck check{pool.name, "output of this machine's attention <= 2 TV max|v| + value error of its meter"};
    for (int64_t trial = 0; trial < trials; ++trial) {
      Cell cell(pool, random, kVerifiedHeadDims[trial % 3], 2 + static_cast<int32_t>(random.below(300)));
      cell.run(ops);
      for (int32_t head = 0; head < kHeads; ++head) cell.check(head, check);
    }
    checks.push_back(check);
  }
  return checks;
}

}  // namespace assay
