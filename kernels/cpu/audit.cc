#include "kernels/cpu/audit.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/cpu/elements.h"

namespace assay {
namespace {

// Exact rows of one KV head: [tokens][head_dim] of K and of V.
struct ExactRows {
  std::vector<float> keys, values;
};

std::optional<ExactRows> exact_rows(const PoolProblem& problem, const PoolItem& item, kv::GateTally& tally) {
  const kv::BackingView& backing = problem.cache.backing;
  const int32_t dim = problem.shape.head_dim, own = item.first_own + 1;
  const int32_t* pages = problem.batch.pages_of(item.sequence);
  ExactRows rows;
  rows.keys.resize(static_cast<size_t>((item.stored + own) * dim));
  rows.values.resize(rows.keys.size());
  for (int32_t t = 0; t < item.stored; ++t) {
    const int32_t page = pages[t / backing.page_tokens], token = t % backing.page_tokens;
    if (!backing.covers(page)) return std::nullopt;
    const int64_t block = backing.block(problem.layer, page, item.kv_head);
    if (!kv::row_is_intact(backing, block, token)) {
      tally.checksum_failures += 1;
      return std::nullopt;
    }
    for (const auto& [from, to] : {std::pair{backing.k_row(block, token), &rows.keys},
                                   {backing.v_row(block, token), &rows.values}}) {
      with_elements(problem.cache.dtype, from, [&, to = to](const auto* elements) {
        for (int32_t c = 0; c < dim; ++c) (*to)[static_cast<size_t>(t * dim + c)] = element_to_f32(elements[c]);
      });
    }
  }
  const int32_t first_key = problem.shape.num_heads + item.kv_head;
  for (int32_t t = 0; t < own; ++t) {
    const int64_t at = t * problem.qkv.row_stride, to = int64_t{item.stored + t} * dim;
    std::copy_n(problem.own(item, first_key) + at, dim, rows.keys.data() + to);
    std::copy_n(problem.own(item, first_key + problem.shape.num_kv_heads) + at, dim, rows.values.data() + to);
  }
  return rows;
}

void count(const CellErrors& errors, double tv_bound, double value_error, kv::AuditTally& tally) {
  tally.cells += 1;
  const double output_bound = kv::output_bound(tv_bound, errors.largest_value, value_error);
  // Negated, so that a NaN is a violation. A bound of 1 holds for any weights, and says nothing of the output.
  tally.violations += !(errors.tv <= tv_bound) || (tv_bound < 1.0 && !(errors.output <= output_bound));
  const double ratio = errors.tv > 0 ? tv_bound / errors.tv : INFINITY;
  int bucket = 0;
  while (bucket < kv::kNumTightnessBuckets - 1 && !(ratio <= kv::kTightnessEdges[bucket])) ++bucket;
  tally.tightness[bucket] += 1;
  if (kv::is_finite(ratio)) tally.tightness_sum += ratio;
}

}  // namespace

ExactAttention::ExactAttention(const PoolProblem& problem, const PoolItem& item, kv::GateTally& tally)
    : problem_(problem), item_(item) {
  const std::optional<ExactRows> rows = exact_rows(problem, item, tally);
  if (!rows) return;
  for (int32_t pair = 0; pair < problem.group(); ++pair) {
    const int64_t head = int64_t{problem.head(item, pair)} * problem.shape.head_dim;
    heads_.push_back(
        attend(problem.qkv.f32() + item.first_row * problem.qkv.row_stride + head, rows->keys, rows->values));
  }
}

ExactAttention::Head ExactAttention::attend(const float* query, const std::vector<float>& keys,
                                            const std::vector<float>& values) const {
  const auto dim = static_cast<size_t>(problem_.shape.head_dim);
  const size_t tokens = keys.size() / dim;
  Head head{std::vector<double>(tokens), std::vector<double>(dim), 0};
  double largest = -INFINITY, sum = 0;
  for (size_t t = 0; t < tokens; ++t) {
    double logit = 0;
    for (size_t c = 0; c < dim; ++c) logit += static_cast<double>(query[c]) * static_cast<double>(keys[t * dim + c]);
    head.weights[t] = logit / std::sqrt(static_cast<double>(dim));
    largest = std::max(largest, head.weights[t]);
  }
  for (double& w : head.weights) sum += w = std::exp(w - largest);
  for (size_t t = 0; t < tokens; ++t) {
    head.weights[t] /= sum;
    double square = 0;
    for (size_t c = 0; c < dim; ++c) {
      const auto value = static_cast<double>(values[t * dim + c]);
      head.output[c] += head.weights[t] * value;
      square += value * value;
    }
    head.largest_value = std::max(head.largest_value, std::sqrt(square));
  }
  return head;
}

CellErrors ExactAttention::errors(int32_t pair, const AttentionLogView& log) const {
  const Head& exact = heads_[static_cast<size_t>(pair)];
  const std::vector<double> served = served_weights(log, pair);
  const float* output = problem_.out.f32() + item_.first_row * problem_.out.row_stride +
                        int64_t{problem_.head(item_, pair)} * problem_.shape.head_dim;
  CellErrors errors;
  errors.largest_value = exact.largest_value;
  for (size_t t = 0; t < served.size(); ++t) errors.tv += 0.5 * std::abs(served[t] - exact.weights[t]);
  for (size_t c = 0; c < exact.output.size(); ++c) {
    const double difference = static_cast<double>(output[c]) - exact.output[c];
    errors.output += difference * difference;
  }
  errors.output = std::sqrt(errors.output);
  return errors;
}

void audit_cell(const PoolProblem& problem, const PoolItem& item, int32_t pair, const CellErrors& errors,
                kv::AuditTallies& tallies) {
  const kv::MeterView& meter = problem.meter;
  const int64_t at = int64_t{problem.cell(item, pair)} * meter.num_heads + problem.head(item, pair);
  const kv::MeterCell& cell = meter.cells[at];
  if (cell.compressed_tokens == 0) return;
  const kv::MeterThresholds& thresholds = meter.thresholds[item.sequence];
  const auto value = static_cast<double>(kv::value_error(cell.certain, cell.serial_terms));
  if (meter.radius != kv::RadiusKind::kDither) {
    const kv::Meter<float> certain = kv::judge_cell(cell, thresholds, meter.bound, kv::RadiusKind::kWitness).meter;
    count(errors, static_cast<double>(certain.tv), value, tallies.deterministic);
  }
  if (meter.radius != kv::RadiusKind::kWitness) {
    const kv::Meter<float> conditional = kv::judge_cell(cell, thresholds, meter.bound, meter.radius).meter;
    count(errors, static_cast<double>(conditional.tv), value, tallies.conditional);
  }
}

}  // namespace assay
