#include "kernels/cpu/pool_finish.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/pool_kernels.h"

namespace assay {
namespace {

// As a tree, which vectors can add.
float lane_sum(const float* sums, PairSum which) {
  float part[8];
  for (int32_t i = 0; i < 8; ++i) part[i] = sums[which * 16 + i] + sums[which * 16 + 8 + i];
  for (int32_t i = 0; i < 4; ++i) part[i] += part[i + 4];
  return (part[0] + part[2]) + (part[1] + part[3]);
}
float lane_max(const float* sums, PairSum which) {
  return *std::max_element(sums + which * 16, sums + which * 16 + 16);
}

kv::MeterSums<float> meter_sums(const PoolState& state, int32_t pair, bool other) {
  const float* sums = state.sums + pair * kPairSumFloats;
  kv::MeterSums<float> result;
  result.logit_max = state.max[pair];
  result.weight = lane_sum(sums, kWeight);
  result.b1 = lane_sum(sums, other ? kOtherB1 : kB1);
  result.b2 = lane_sum(sums, other ? kOtherB2 : kB2);
  result.radius_max = lane_max(sums, other ? kOtherRadius : kRadius);
  result.value_error = lane_sum(sums, kValueError);
  return result;
}

// Four partial sums of each channel in fragment order: side by side, or four lanes apart from integer products.
void add_fragment_sums(const float* acc, int32_t dim, bool integers, float* out) {
  for (int32_t piece = 0; piece < dim / 4; ++piece, acc += 16) {
    float sums[4];
    for (int32_t i = 0; i < 4; ++i) {
      sums[i] = integers ? (acc[i] + acc[4 + i]) + (acc[8 + i] + acc[12 + i])
                         : (acc[4 * i] + acc[4 * i + 1]) + (acc[4 * i + 2] + acc[4 * i + 3]);
    }
    for (int32_t i = 0; i < 4; ++i) out[piece / 8 * 32 + 8 * i + piece % 8] = sums[i];
  }
}

// The stored part of a pair's output, in the model's channels, not normalised.
void stored_output(const PoolBlock& b, const PoolState& state, int32_t pair, float* out) {
  const int32_t dim = b.stored.head_dim;
  const float* acc = state.acc + int64_t{pair} * b.acc_stride;
  if (b.fragments)
    add_fragment_sums(acc, dim, b.integers, out);
  else
    std::copy_n(acc, dim, out);
  const float* signs = b.stored.cache->tables.signs;
  if (signs != nullptr) pool_rotate_back(signs, out, dim);
}

// Largest |v| of the stored tokens, rounded down. A NaN row counts as the largest number.
float stored_value_norm(const PoolProblem& problem, const PoolItem& item) {
  const uint16_t* norms = problem.cache.value_norms(problem.layer, item.kv_head);
  const int32_t* pages = problem.batch.pages_of(item.sequence);
  uint16_t largest = 0;
  for (int32_t i = 0; i * problem.cache.page_tokens < item.stored; ++i) largest = std::max(largest, norms[pages[i]]);
  return kv::half_to_float(largest);
}

// Stored tokens that are read as exact rows.
int32_t exact_tokens(const PoolBlock& b) {
  int32_t count = 0;
  for (int32_t tile = 0; tile * kTileTokens < b.stored_tokens; ++tile) {
    if (b.exact_page(tile) != nullptr) count += std::min(kTileTokens, b.stored_tokens - tile * kTileTokens);
  }
  return count;
}

// What all pairs of an item share in their cells.
struct CellTerms {
  float value_norm = 0;  // own rows can only raise it
  int32_t exact_tokens = 0;
};

void store_cell(const PoolProblem& problem, const PoolItem& item, const PoolBlock& b, int32_t pair,
                const PoolState& stored, const PoolState& exact, const CellTerms& terms) {
  const int32_t own_tokens = item.first_own + pair / problem.group() + 1;
  const bool both = b.radius == kv::RadiusKind::kBoth;
  kv::MeterCell cell;
  cell.certain = meter_sums(exact, pair, false);
  cell.conditional = both ? meter_sums(exact, pair, true) : cell.certain;
  cell.compressed_tokens = item.stored - terms.exact_tokens;
  if (cell.compressed_tokens > 0) {
    const kv::MeterSums<float> conditional = kv::merge(meter_sums(stored, pair, both), cell.conditional);
    cell.certain = kv::merge(meter_sums(stored, pair, false), cell.certain);
    cell.conditional = conditional;
    if (b.radius == kv::RadiusKind::kDither) cell.certain.b1 = cell.certain.radius_max = kv::infinity();
  }
  cell.value_norm_low = terms.value_norm;
  const int32_t exact_tiles = own_tokens / kTileTokens + 1 + terms.exact_tokens / kTileTokens + 1;
  cell.serial_terms = 2 * (kSplitTokens / kTileTokens) + 2 * item.splits() + 2 * exact_tiles + 16;
  const int64_t at = int64_t{problem.cell(item, pair)} * problem.meter.num_heads + problem.head(item, pair);
  problem.meter.cells[at] = cell;
}

void store_output(const PoolItem& item, const PoolBlock& b, int32_t pair, const PoolState& stored,
                  const PoolState& exact, float* to) {
  const int32_t dim = b.own.head_dim;
  const float* exact_acc = exact.acc + int64_t{pair} * dim;
  const float exact_weight = lane_sum(exact.sums + pair * kPairSumFloats, kWeight);
  if (item.stored == 0) {
    const float inverse = 1.0f / exact_weight;
    for (int32_t c = 0; c < dim; ++c) to[c] = exact_acc[c] * inverse;
    return;
  }
  float row[kv::kMaxHeadDim];
  const float max = std::max(stored.max[pair], exact.max[pair]);
  const float a = std::exp(stored.max[pair] - max), e = std::exp(exact.max[pair] - max);
  const float inverse = 1.0f / (lane_sum(stored.sums + pair * kPairSumFloats, kWeight) * a + exact_weight * e);
  stored_output(b, stored, pair, row);
  for (int32_t c = 0; c < dim; ++c) to[c] = (row[c] * a + exact_acc[c] * e) * inverse;
}

}  // namespace

void merge_split(const PoolState& total, const PoolState& next, int32_t pairs, int32_t acc_stride) {
  const float none = -kv::infinity();
  for (int32_t pair = 0; pair < pairs; ++pair) {
    if (next.max[pair] == none) continue;  // a split of exact pages alone
    const float max = std::max(total.max[pair], next.max[pair]);
    const float a = total.max[pair] == none ? 0.0f : std::exp(total.max[pair] - max);
    const float b = std::exp(next.max[pair] - max);
    total.max[pair] = max;
    float* sums = total.sums + pair * kPairSumFloats;
    const float* from = next.sums + pair * kPairSumFloats;
    for (int32_t i = 0; i < kPairSumFloats; ++i) {
      const bool largest = i / 16 == kRadius || i / 16 == kOtherRadius;
      sums[i] = largest ? std::max(sums[i], from[i]) : sums[i] * a + from[i] * b;
    }
    float* acc = total.acc + int64_t{pair} * acc_stride;
    const float* next_acc = next.acc + int64_t{pair} * acc_stride;
    for (int32_t c = 0; c < acc_stride; ++c) acc[c] = acc[c] * a + next_acc[c] * b;
  }
}

void finish_item(const PoolProblem& problem, const PoolItem& item, const PoolBlock& b, const PoolState& stored,
                 const PoolState& exact) {
  CellTerms terms;
  if (item.stored > 0 && problem.meter.num_metered > 0) {
    terms = {.value_norm = stored_value_norm(problem, item), .exact_tokens = exact_tokens(b)};
  }
  for (int32_t pair = 0; pair < b.own.pairs; ++pair) {
    float* to = problem.out.f32() + problem.row(item, pair) * problem.out.row_stride +
                problem.head(item, pair) * problem.shape.head_dim;
    store_output(item, b, pair, stored, exact, to);
    if (b.metered[pair] != 0) store_cell(problem, item, b, pair, stored, exact, terms);
  }
}

}  // namespace assay
