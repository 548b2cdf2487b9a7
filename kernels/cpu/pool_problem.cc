#include "kernels/cpu/pool_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/pool_kernels.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"

namespace assay {
namespace {

constexpr int32_t kBlockPairs = 48;
constexpr int32_t kWorkPairs = 4;  // pairs whose weights are in work at a time

int32_t group_size(const PoolBlock& b) {
  return b.stored.head_dim / b.groups;
}

PoolBlock carve(const PoolProblem& problem, int32_t pairs, Carver& carver) {
  const int64_t dim = problem.shape.head_dim, groups = problem.groups(), bypass = problem.bypass_count();
  PoolBlock b;
  PairTerms& t = b.terms;
  b.own.q = t.q_own = carver.take(pairs * dim);
  t.q_pool = carver.take(pairs * dim);
  t.q_fragments = carver.take(pairs * 2 * dim);
  b.stored.q = t.q_fragments;  // decoded tiles take floats in order instead
  t.q_digits = reinterpret_cast<int8_t*>(carver.take(pairs * dim / 32 * kDigits * 16));
  t.q_start = reinterpret_cast<int32_t*>(carver.take(pairs * kDigits * 16));
  t.factor = carver.take(int64_t{pairs} * problem.bands());
  for (float** piece : {&t.own_factor, &t.scale, &t.dither_norm}) *piece = carver.take(pairs);
  for (float** piece : {&t.dither_variance, &t.dither_bias}) *piece = carver.take(pairs * groups);
  t.dither_dots = carver.take(pairs * groups * kDitherTokens);
  t.bypass_query = carver.take(pairs * bypass);
  b.metered = reinterpret_cast<uint8_t*>(carver.take(pairs));
  b.kappa = carver.take(pairs);
  b.own.k_tile = b.stored.k_tile = carver.take(dim * kTileTokens);
  b.own.v_tile = b.stored.v_tile = carver.take(dim * kTileTokens);
  b.own.probs = b.stored.probs = carver.take(int64_t{pairs} * kTileTokens);
  b.own.decay = b.stored.decay = carver.take(pairs);
  for (float** piece : {&b.side.masked, &b.side.witness, &b.side.rho, &b.side.dither_norm}) {
    *piece = carver.take(kMaxStepTokens);
  }
  for (float** piece : {&b.side.scale, &b.side.value_scale}) *piece = carver.take(groups * kMaxStepTokens);
  b.side.bypass = carver.take(bypass * kMaxStepTokens);
  b.scores = carver.take(int64_t{pairs} * kMaxStepTokens);
  b.weights = carver.take(kWorkPairs * kMaxStepTokens);
  b.bypass_radii = carver.take(bypass == 0 ? 0 : int64_t{pairs} * kMaxStepTokens);
  b.tile_radii = carver.take(problem.fragments ? 0 : int64_t{pairs} * 2 * kTileTokens);
  b.own_norms = carver.take(kTileTokens);
  b.exact_rows = carver.take(2 * dim * kTileTokens);
  b.weight_digits = reinterpret_cast<int8_t*>(carver.take(kWorkPairs * kMaxStepTiles * kDigits * 16));
  return b;
}

// The pair's part of kv::dither_radius.
void load_dither_terms(const PoolBlock& b, int32_t pair, float norm, const kv::ArithmeticMargins& margins) {
  float square_sum[kv::kMaxHeadDim / 16], absolute_sum[kv::kMaxHeadDim / 16];
  const float* q = b.terms.q_pool + pair * b.stored.head_dim;
  for (int32_t g = 0; g < b.groups; ++g) {
    square_sum[g] = absolute_sum[g] = 0;
    for (int32_t c = g * group_size(b); c < (g + 1) * group_size(b); ++c) {
      square_sum[g] += q[c] * q[c];
      absolute_sum[g] += std::abs(q[c]);
    }
  }
  const float up = b.softmax_scale * kv::norm_inflation(b.stored.head_dim) * (1.0f + 0x1p-18f);
  for (int32_t g = 0; g < b.groups; ++g) {
    const float deviation = up * b.kappa[pair];
    b.terms.dither_variance[pair * b.groups + g] = deviation * deviation * square_sum[g] * (1.0f / 12.0f);
    b.terms.dither_bias[pair * b.groups + g] = up * kv::kDitherBias * absolute_sum[g];
  }
  b.terms.dither_norm[pair] = up * norm * (130.0f * (margins.dot + margins.query) + 256.0f * margins.rotation);
}

void load_fragment_query(const PoolBlock& b, int32_t pair) {
  const int32_t dim = b.stored.head_dim;
  const float* q = b.terms.q_pool + pair * dim;
  if (b.integers && b.stored.cache->format == KvFormat::kCertified) {  // witcert: weights of V alone
    const float unit = pool_load_integer_query(q, dim, b.terms.q_digits + int64_t{pair} * dim / 32 * kDigits * 64,
                                               b.terms.q_start + pair * kDigits * 16);
    b.terms.scale[pair] = unit * b.softmax_scale;
    return;
  }
  float* to = b.terms.q_fragments + int64_t{pair} * 2 * dim;
  for (int32_t c = 0; c < dim; c += 4) {
    std::copy_n(q + c, 4, to + 2 * c);
    std::copy_n(q + c, 4, to + 2 * c + 4);
  }
  b.terms.scale[pair] = b.softmax_scale;
}

// A query that meets stored rows: transformed, in the form its products need, with what its radii need.
void load_stored_query(const PoolBlock& b, int32_t pair, const float* query, const kv::RowTransform& t) {
  const int32_t dim = b.stored.head_dim;
  float* q = b.terms.q_pool + pair * dim;
  pool_transform_query(t, query, q);
  const float norm = pool_norm_up(q, dim);
  const kv::ArithmeticMargins margins = kv::transform_margins(t);
  if (b.bands > 1)
    kv::band_factors(b.softmax_scale, q, dim, kv::plain_margins(dim), b.terms.factor + pair * b.bands);
  else
    b.terms.factor[pair] = kv::witness_factor(b.softmax_scale, norm, margins);
  if (b.dithered()) load_dither_terms(b, pair, norm, margins);
  for (int32_t i = 0; i < b.bypass_count; ++i) {
    b.terms.bypass_query[pair * b.bypass_count + i] = query[t.bypass[i]] * b.softmax_scale;
  }
  if (b.fragments) {
    load_fragment_query(b, pair);
    // A query that is not finite must show: the integers would hide it.
    if (!kv::is_finite(norm)) b.terms.scale[pair] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  float* whole = b.terms.q_fragments + pair * dim;  // bypassed channels are decoded into the rows
  for (int32_t c = 0; c < dim; ++c) whole[c] = q[c] * b.softmax_scale;
  for (int32_t i = 0; i < b.bypass_count; ++i) whole[t.bypass[i]] = b.terms.bypass_query[pair * b.bypass_count + i];
}

void load_pair(const PoolProblem& problem, const PoolItem& item, int32_t pair, const kv::RowTransform& t,
               const PoolBlock& b) {
  const int32_t dim = problem.shape.head_dim;
  const float* query =
      problem.qkv.f32() + problem.row(item, pair) * problem.qkv.row_stride + problem.head(item, pair) * dim;
  for (int32_t c = 0; c < dim; ++c) b.terms.q_own[pair * dim + c] = query[c] * b.softmax_scale;
  b.terms.own_factor[pair] = kv::bypass_radius(b.softmax_scale, pool_norm_up(query, dim), dim);
  if (item.stored > 0) load_stored_query(b, pair, query, t);
}

void point(const PoolProblem& problem, const PoolItem& item, PoolBlock& b) {
  const int32_t pairs = item.rows * problem.group();
  for (AttentionBlock* a : {&b.stored, &b.own}) {
    a->cache = &problem.cache;
    a->layer = problem.layer;
    a->pages = problem.batch.pages_of(item.sequence);
    a->kv_head = item.kv_head;
    a->head_dim = a->dim_stride = problem.shape.head_dim;
    a->pairs = pairs;
  }
  b.own.first_position = item.first_own;
  b.own.group = problem.group();
  b.stored.first_position = item.stored - 1;  // every row sees all of them
  b.stored.group = pairs;
}

void load_meter_terms(const PoolProblem& problem, const PoolItem& item, const PoolBlock& b) {
  for (int32_t pair = 0; pair < b.own.pairs; ++pair) {
    const int32_t cell = problem.cell(item, pair);
    b.metered[pair] = cell >= 0;
    b.kappa[pair] =
        cell >= 0 && b.dithered() ? problem.meter.thresholds[problem.meter.rows[cell].sequence].kappa : 0.0f;
  }
}

}  // namespace

int32_t PoolItem::splits() const {
  return (stored + kSplitTokens - 1) / kSplitTokens;
}

int32_t PoolProblem::groups() const {
  return cache.format == KvFormat::kWitcert ? kv::group_count(shape.head_dim) : 1;
}
int32_t PoolProblem::bands() const {
  return cache.format == KvFormat::kObserved ? kv::band_count(shape.head_dim) : 1;
}

PoolProblem make_pool_problem(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                              const PagedKvView& cache, const kv::MeterView& meter, Tensor out) {
  const bool in_order = cache.format == KvFormat::kCertified || cache.format == KvFormat::kWitcert;
  const bool fragments = in_order && pool_reads_fragments(shape.head_dim);
  return {layer, batch, shape, qkv, cache, meter, out, fragments, fragments && pool_has_integer_products()};
}

std::vector<PoolItem> make_pool_items(const PoolProblem& problem) {
  const BatchView& batch = problem.batch;
  const int32_t block_rows = std::max(1, kBlockPairs / problem.group());
  std::vector<PoolItem> items;
  for (int32_t s = 0; s < batch.num_sequences; ++s) {
    const int32_t begin = batch.first_row[s], end = batch.first_row[s + 1];
    for (int32_t row = begin; row < end; row += block_rows) {
      for (int32_t h = 0; h < problem.shape.num_kv_heads; ++h) {
        items.push_back({s, row, std::min(block_rows, end - row), h, batch.positions[begin], row - begin});
      }
    }
  }
  return items;
}

PoolState take_state(Carver& carver, int32_t pairs, int32_t acc_stride) {
  PoolState state{};
  state.max = carver.take(pairs);
  state.sums = carver.take(int64_t{pairs} * kPairSumFloats);
  state.acc = carver.take(int64_t{pairs} * acc_stride);
  return state;
}

void clear_state(const PoolState& state, int32_t pairs, int32_t acc_stride) {
  std::fill_n(state.max, pairs, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sums, int64_t{pairs} * kPairSumFloats, 0.0f);
  std::fill_n(state.acc, int64_t{pairs} * acc_stride, 0.0f);
}

size_t pool_block_floats(const PoolProblem& problem, int32_t pairs) {
  Carver carver(nullptr);
  carve(problem, pairs, carver);
  return carver.taken();
}

PoolBlock make_pool_block(const PoolProblem& problem, const PoolItem& item, Carver& carver) {
  PoolBlock b = carve(problem, item.rows * problem.group(), carver);
  b.softmax_scale = 1.0f / std::sqrt(static_cast<float>(problem.shape.head_dim));
  b.stored_tokens = item.stored;
  b.acc_stride = problem.acc_stride();
  b.step_tiles = problem.shape.head_dim > 128 ? kMaxStepTiles / 2 : kMaxStepTiles;
  b.groups = problem.groups();
  b.bands = problem.bands();
  b.bypass_count = problem.bypass_count();
  b.fragments = problem.fragments;
  b.integers = problem.integers;
  b.radius = problem.meter.radius;
  point(problem, item, b);
  load_meter_terms(problem, item, b);
  const kv::RowTransform t = problem.cache.transform(problem.layer, item.kv_head);
  for (int32_t pair = 0; pair < b.own.pairs; ++pair) load_pair(problem, item, pair, t, b);
  const bool periodic = problem.cache.tables.dither_stream == DitherStream::kPeriodic;
  if (item.stored > 0 && b.fragments && periodic) pool_load_dither_dots(b, 0, kDitherTokens);
  return b;
}

void pool_dither_row(const PagedKvView& cache, int32_t layer, int32_t kv_head, int32_t position, float* xi) {
  const KvPoolTables& tables = cache.tables;
  const int32_t dim = cache.head_dim;
  switch (tables.dither_stream) {
    case DitherStream::kNone:
      std::fill_n(xi, dim, 0.0f);
      return;
    case DitherStream::kPeriodic: {
      const int64_t head = int64_t{layer} * cache.num_kv_heads + kv_head;
      const float* columns = tables.dither + head * dim * kDitherTokens + position % kDitherTokens;
      for (int32_t c = 0; c < dim; ++c) xi[c] = columns[c * kDitherTokens];
      return;
    }
    case DitherStream::kPerSlot:
      kv::dither_row(tables.seed, static_cast<uint32_t>(layer), static_cast<uint32_t>(tables.first_kv_head + kv_head),
                     static_cast<uint32_t>(position), dim, xi);
      return;
  }
}

void pool_load_dither_dots(const PoolBlock& b, int32_t first, int32_t count) {
  const PagedKvView& cache = *b.stored.cache;
  const int32_t dim = b.stored.head_dim, size = group_size(b);
  float drawn[kv::kMaxHeadDim * kTileTokens];
  const float* columns = cache.tables.dither;
  if (cache.tables.dither_stream == DitherStream::kPeriodic) {
    columns += (int64_t{b.stored.layer} * cache.num_kv_heads + b.stored.kv_head) * dim * kDitherTokens;
  } else {
    float xi[kv::kMaxHeadDim];
    for (int32_t t = 0; t < kTileTokens; ++t) {
      pool_dither_row(cache, b.stored.layer, b.stored.kv_head, first + t, xi);
      for (int32_t c = 0; c < dim; ++c) drawn[c * kTileTokens + t] = xi[c];
    }
    columns = drawn;
  }
  for (int32_t pair = 0; pair < b.stored.pairs; ++pair) {
    for (int32_t g = 0; g < b.groups; ++g) {
      float sums[kDitherTokens] = {};
      pool_add_dither_products(b.terms.q_pool + pair * dim + g * size, columns + g * size * count, size, count, sums);
      float* dots = b.terms.dither_dots + (pair * b.groups + g) * kDitherTokens;
      for (int32_t i = 0; i < count; ++i) {
        const int32_t tile = (first + i) % kDitherTokens / kTileTokens;
        dots[tile * kTileTokens + kv::value_side_index(i % kTileTokens)] = sums[i] * b.softmax_scale;
      }
    }
  }
}

}  // namespace assay
