#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/sampling.h"
#include "kernels/cuda/row_reduce.cuh"
#include "kernels/cuda/sampling.h"

namespace assay {
namespace {

constexpr float kUnit = 0x1p44f;  // of a weight: 2^18 of the largest weights still fit into 64 bits
constexpr int kDigits = 256;

// What the rules do to one logit, in the order of the fields.
struct Edit {
  int32_t id = 0;
  float bias = 0.0f;
  float repetition = 1.0f;
  float subtract = 0.0f;
  int32_t forbidden = 0;
  int32_t count = 0;  // in the output so far; on the host
};

struct DeviceRow {
  float temperature, top_p, min_p;
  int32_t top_k;
  double uniform;
  int32_t first_edit, num_edits;
  // Rules that look at the order of the candidates; min_p alone does not.
  __host__ __device__ bool ranks() const { return top_k > 0 || top_p < 1.0f; }
};

// Appends the edits of one row, each id once. `place` [vocabulary], made when first needed, holds -1 everywhere before
// and after: long prompts with a repetition penalty are gone over in every step.
void add_edits(const SamplingRow& row, int64_t vocabulary, std::vector<int32_t>& place, std::vector<Edit>& edits) {
  const size_t first = edits.size();
  const auto edit_of = [&](int32_t id) -> Edit& {
    if (place.empty()) place.assign(static_cast<size_t>(vocabulary), -1);
    int32_t& at = place[static_cast<size_t>(id)];
    if (at < 0) {
      at = static_cast<int32_t>(edits.size());
      edits.push_back({id});
    }
    return edits[static_cast<size_t>(at)];
  };
  for (const auto& [id, bias] : row.logit_bias) edit_of(id).bias += bias;
  if (row.repetition_penalty != 1.0f) {
    for (int32_t id : row.prompt) edit_of(id).repetition = row.repetition_penalty;
    for (int32_t id : row.output) edit_of(id).repetition = row.repetition_penalty;
  }
  if (row.presence_penalty != 0.0f || row.frequency_penalty != 0.0f) {
    for (int32_t id : row.output) ++edit_of(id).count;
  }
  for (int32_t id : row.forbidden) edit_of(id).forbidden = 1;
  for (size_t i = first; i < edits.size(); ++i) {
    Edit& edit = edits[i];
    if (edit.count > 0) {
      edit.subtract = row.presence_penalty + row.frequency_penalty * static_cast<float>(edit.count);
    }
    place[static_cast<size_t>(edit.id)] = -1;
  }
}

__device__ float edited(float logit, const Edit& edit) {
  logit += edit.bias;
  if (edit.repetition != 1.0f) logit = logit > 0.0f ? logit / edit.repetition : logit * edit.repetition;
  logit -= edit.subtract;
  return edit.forbidden != 0 ? -INFINITY : logit;
}

// Weight of a logit as an integer: kUnit at the maximum, 0 below min_p of it.
struct Weights {
  float max_logit, temperature, min_p;
  __device__ float relative(float logit) const { return expf((logit - max_logit) / temperature); }
  __device__ uint64_t operator()(float logit) const {
    const float w = relative(logit);
    return w >= min_p ? static_cast<uint64_t>(w * kUnit) : 0;
  }
};

// Candidates worse than some distance from the best are told apart coarsely first, so that what follows looks at few.
constexpr int kLevels = 6;
__device__ constexpr float kLevelWeights[kLevels] = {0.84f, 0.5f, 0x1p-4f, 0x1p-11f, 0x1p-22f, 0x1p-44f};

struct Shared {
  uint32_t low[kDigits], high[kDigits], counts[kDigits];  // sums of a digit as two halves: 32-bit additions are fast
  uint64_t warps[kRowWarps];
  uint64_t found, before;
  uint32_t alone;
  int32_t listed;
};

// The candidates that are still looked at, in any order, and the worst rank that is kept among them.
struct Candidates {
  const float* row;
  const int32_t* ids;
  int count;
  uint64_t from = 0;
  __device__ bool keeps(uint64_t rank) const { return rank >= from; }
};

// What is added up along the best-first order.
struct CountOne {
  __device__ uint64_t operator()(float) const { return 1; }
};

template <class Value>
__device__ uint64_t total_of(const Candidates& from, const Value& value, Shared& shared) {
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < from.count; i += kRowBlock) {
    const int32_t id = from.ids[i];
    if (from.keeps(ranked(from.row[id], id))) sum += value(from.row[id]);
  }
  return block_reduce(sum, shared.warps, SumOf());
}

// Of the digits that were summed up, the one in which the sum, from the largest digit down, first exceeds `target`; the
// smallest that occurs where it never does. Sets found, before (the sum of larger digits), alone (one candidate has
// it).
__device__ void choose_digit(uint64_t before, uint64_t target, Shared& shared) {
  const int digit = kDigits - 1 - static_cast<int>(threadIdx.x);
  const uint64_t own = digit >= 0 ? static_cast<uint64_t>(shared.high[digit]) << 32 | shared.low[digit] : 0;
  const uint64_t start = before + block_prefix(own, shared.warps);
  const int latest =
      block_reduce(own > 0 ? static_cast<int>(threadIdx.x) : 0, reinterpret_cast<int*>(shared.warps), LargerOf());
  const bool crosses = own > 0 && start <= target && target < start + own;
  const bool crossed = __syncthreads_or(crosses) != 0;
  if (crosses || (!crossed && static_cast<int>(threadIdx.x) == latest)) {
    shared.found = static_cast<uint64_t>(digit);
    shared.before = start;
    shared.alone = shared.counts[digit] == 1;
  }
  __syncthreads();
}

// The one kept candidate with a value whose rank starts with `prefix`.
template <class Value>
__device__ uint64_t rank_with_prefix(const Candidates& from, const Value& value, uint64_t prefix, int shift,
                                     Shared& shared) {
  for (int i = threadIdx.x; i < from.count; i += kRowBlock) {
    const int32_t id = from.ids[i];
    const uint64_t rank = ranked(from.row[id], id);
    if (rank >> shift == prefix && from.keeps(rank) && value(from.row[id]) > 0) shared.found = rank;
  }
  __syncthreads();
  const uint64_t rank = shared.found;
  __syncthreads();
  return rank;
}

__device__ void add_to_digit(Shared& shared, int digit, uint64_t amount) {
  const uint32_t low = static_cast<uint32_t>(amount);
  const uint32_t old = atomicAdd(&shared.low[digit], low);
  const uint32_t high = static_cast<uint32_t>(amount >> 32) + (old + low < old ? 1u : 0u);
  if (high != 0) atomicAdd(&shared.high[digit], high);
  atomicAdd(&shared.counts[digit], 1u);
}

// The rank, in best-first order, at which the sum of values first exceeds `target`; the worst candidate where it never
// does. Radix descent: the 64-bit rank is fixed 8 bits at a time by the sums of what shares the digits so far.
template <class Value>
__device__ uint64_t rank_exceeding(const Candidates& from, const Value& value, uint64_t target, Shared& shared) {
  uint64_t prefix = 0, before = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < kDigits; d += kRowBlock) shared.low[d] = shared.high[d] = shared.counts[d] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < from.count; i += kRowBlock) {
      const int32_t id = from.ids[i];
      const uint64_t rank = ranked(from.row[id], id);
      if ((shift < 56 && rank >> (shift + 8) != prefix) || !from.keeps(rank)) continue;
      const uint64_t amount = value(from.row[id]);
      if (amount > 0) add_to_digit(shared, static_cast<int>(rank >> shift & 255), amount);
    }
    __syncthreads();
    choose_digit(before, target, shared);
    prefix = prefix << 8 | shared.found;
    before = shared.before;
    const bool alone = shared.alone != 0;
    __syncthreads();
    if (alone) return rank_with_prefix(from, value, prefix, shift, shared);
  }
  return prefix;
}

// How many candidates weigh at least so much, and what they weigh together; the last level is everything.
struct Level {
  float weight;
  uint64_t count, mass;
};

// The first level that holds every candidate the rules can keep.
__device__ Level choose_level(const float* row, int count, const Weights& weights, const DeviceRow& rules,
                              uint64_t* all_mass, Shared& shared) {
  uint32_t counts[kLevels] = {};
  uint64_t masses[kLevels] = {};
  for (int i = threadIdx.x; i < count; i += kRowBlock) {
    const float w = weights.relative(row[i]);
    const uint64_t mass = weights(row[i]);
#pragma unroll
    for (int l = 0; l < kLevels; ++l) {
      if (w < kLevelWeights[l] || w < rules.min_p) continue;
      ++counts[l];
      masses[l] += mass;
    }
  }
  Level chosen{};
  *all_mass = block_reduce(masses[kLevels - 1], shared.warps, SumOf());
  const bool only_top_p = rules.top_k <= 0 && rules.min_p <= 0.0f;
  const double wanted = static_cast<double>(rules.top_p) * static_cast<double>(*all_mass);
  bool done = false;
#pragma unroll
  for (int l = 0; l < kLevels; ++l) {
    const uint64_t number = block_reduce(static_cast<uint64_t>(counts[l]), shared.warps, SumOf());
    const uint64_t mass = block_reduce(masses[l], shared.warps, SumOf());
    if (done) continue;
    chosen = {kLevelWeights[l], number, mass};
    done = (rules.top_k > 0 && number >= static_cast<uint64_t>(rules.top_k)) || kLevelWeights[l] <= rules.min_p ||
           (only_top_p && static_cast<double>(mass) >= wanted + 1.0);
  }
  return chosen;
}

// Writes the ids of the level's candidates, in any order.
__device__ Candidates list_candidates(const float* row, int count, const Weights& weights, const DeviceRow& rules,
                                      const Level& level, int32_t* ids, Shared& shared) {
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  const int padded = (count + kRowBlock - 1) / kRowBlock * kRowBlock;
  for (int i = threadIdx.x; i < padded; i += kRowBlock) {
    const float w = i < count ? weights.relative(row[i]) : -1.0f;
    const bool in = w >= level.weight && w >= rules.min_p;
    const uint32_t lanes = __ballot_sync(0xffffffffu, in);
    int32_t first = 0;
    if (lanes != 0 && threadIdx.x % 32 == 0) first = atomicAdd(&shared.listed, __popc(lanes));
    first = __shfl_sync(0xffffffffu, first, 0);
    if (in) ids[first + __popc(lanes & ((1u << threadIdx.x % 32) - 1u))] = i;
  }
  __syncthreads();
  return {row, ids, shared.listed};
}

// The id at which the sum of weights in order of ids first exceeds `target`; the last with a weight where it never
// does.
__device__ int32_t id_exceeding(const float* row, int count, const Weights& weights, uint64_t target, Shared& shared) {
  const int each = (count + kRowBlock - 1) / kRowBlock;
  const int begin = min(count, static_cast<int>(threadIdx.x) * each), end = min(count, begin + each);
  uint64_t sum = 0;
  int last = -1;
  for (int i = begin; i < end; ++i) {
    const uint64_t w = weights(row[i]);
    sum += w;
    if (w > 0) last = i;
  }
  const uint64_t before = block_prefix(sum, shared.warps);
  if (threadIdx.x == 0) shared.found = ~uint64_t{0};
  const int furthest = block_reduce(last, reinterpret_cast<int*>(shared.low), LargerOf());
  if (before <= target && target < before + sum) {
    uint64_t left = before;
    for (int i = begin; i < end; ++i) {
      left += weights(row[i]);
      if (left <= target) continue;
      shared.found = static_cast<uint64_t>(i);
      break;
    }
  }
  __syncthreads();
  return shared.found == ~uint64_t{0} ? furthest : static_cast<int32_t>(shared.found);
}

__device__ uint64_t share_of(double share, uint64_t total) {
  return static_cast<uint64_t>(share * static_cast<double>(total));
}

__device__ int32_t draw_filtered(const float* row, int count, const DeviceRow& rules, const Weights& weights,
                                 int32_t* ids, Shared& shared) {
  uint64_t total = 0;
  const Level level = choose_level(row, count, weights, rules, &total, shared);
  Candidates kept = list_candidates(row, count, weights, rules, level, ids, shared);
  if (rules.top_k > 0) {
    kept.from = rank_exceeding(kept, CountOne(), static_cast<uint64_t>(rules.top_k) - 1, shared);
    total = total_of(kept, weights, shared);
  }
  if (rules.top_p < 1.0f) {
    // The first rank at which the mass reaches its share: it exceeds what lies just below the share.
    const uint64_t wanted = static_cast<uint64_t>(ceil(static_cast<double>(rules.top_p) * static_cast<double>(total)));
    kept.from = rank_exceeding(kept, weights, wanted == 0 ? 0 : wanted - 1, shared);
  }
  total = total_of(kept, weights, shared);
  return id_of(rank_exceeding(kept, weights, share_of(rules.uniform, total), shared));
}

__device__ int32_t draw(const float* row, int count, const DeviceRow& rules, float max_logit, int32_t* ids,
                        Shared& shared) {
  const Weights weights{max_logit, rules.temperature, rules.min_p};
  if (rules.ranks()) return draw_filtered(row, count, rules, weights, ids, shared);
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < count; i += kRowBlock) sum += weights(row[i]);
  const uint64_t total = block_reduce(sum, shared.warps, SumOf());
  return id_exceeding(row, count, weights, share_of(rules.uniform, total), shared);
}

// A row a block. `copy` is room for the rows whose logits the rules change, `ids` for the candidates of filtered rows.
__global__ void __launch_bounds__(kRowBlock)
    sample_kernel(const float* logits, int64_t stride, int count, const DeviceRow* rows, const Edit* edits, float* copy,
                  int32_t* ids, int32_t* tokens) {
  __shared__ Shared shared;
  const DeviceRow rules = rows[blockIdx.x];
  const float* row = logits + blockIdx.x * stride;
  uint64_t best = 0;
  if (!best_of_row(row, count, shared.warps, &best)) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = kNoToken;
    return;
  }
  if (rules.num_edits > 0) {
    float* changed = copy + static_cast<int64_t>(blockIdx.x) * count;
    for (int i = threadIdx.x; i < count; i += kRowBlock) changed[i] = row[i];
    __syncthreads();
    for (int e = threadIdx.x; e < rules.num_edits; e += kRowBlock) {
      const Edit& edit = edits[rules.first_edit + e];
      changed[edit.id] = edited(changed[edit.id], edit);
    }
    __syncthreads();
    row = changed;
    best_of_row(row, count, shared.warps, &best);
  }
  const int32_t largest = id_of(best);
  int32_t token = largest;
  if (!isfinite(row[largest])) {
    token = kNoToken;
  } else if (rules.temperature > 0.0f) {
    token = draw(row, count, rules, row[largest], ids + static_cast<int64_t>(blockIdx.x) * count, shared);
  }
  if (threadIdx.x == 0) tokens[blockIdx.x] = token;
}

}  // namespace

void cuda_sample(CudaContext& context, RowScratch& scratch, ConstTensor logits, std::span<const SamplingRow> rows,
                 int32_t* tokens) {
  if (rows.empty()) return;
  std::vector<DeviceRow> device_rows;
  std::vector<Edit> edits;
  std::vector<int32_t> place;
  for (const SamplingRow& row : rows) {
    const int32_t first = static_cast<int32_t>(edits.size());
    add_edits(row, logits.cols, place, edits);
    const double uniform = row.temperature > 0.0f ? uniform_random(row.seed, row.draw) : 0.0;
    device_rows.push_back(
        {row.temperature, row.top_p, row.min_p, row.top_k, uniform, first, static_cast<int32_t>(edits.size()) - first});
  }
  const size_t row_bytes = device_rows.size() * sizeof(DeviceRow), edit_bytes = edits.size() * sizeof(Edit);
  const size_t answers = row_bytes + (edit_bytes + 7) / 8 * 8, answer_bytes = rows.size() * sizeof(int32_t);
  const size_t row_floats = rows.size() * static_cast<size_t>(logits.cols);
  const bool filtered = std::ranges::any_of(device_rows, [](const DeviceRow& row) { return row.ranks(); });
  const size_t copy_bytes = edits.empty() ? 0 : row_floats * sizeof(float);
  const size_t work_bytes = copy_bytes + (filtered ? row_floats * sizeof(int32_t) : 0);
  std::byte* work = static_cast<std::byte*>(context.workspace.take(work_bytes));
  if (!scratch.reserve(context, answers + answer_bytes) || (work_bytes > 0 && work == nullptr)) {
    context.check(cudaErrorMemoryAllocation);
    std::fill_n(tokens, rows.size(), kNoToken);
    return;
  }
  std::memcpy(scratch.host(), device_rows.data(), row_bytes);
  if (edit_bytes > 0) std::memcpy(scratch.host() + row_bytes, edits.data(), edit_bytes);
  scratch.upload(context, row_bytes + edit_bytes);
  sample_kernel<<<static_cast<unsigned>(rows.size()), kRowBlock, 0, context.stream>>>(
      logits.f32(), logits.row_stride, static_cast<int>(logits.cols),
      reinterpret_cast<const DeviceRow*>(scratch.device()), reinterpret_cast<const Edit*>(scratch.device() + row_bytes),
      reinterpret_cast<float*>(work), reinterpret_cast<int32_t*>(work + copy_bytes),
      reinterpret_cast<int32_t*>(scratch.device() + answers));
  context.check(cudaPeekAtLastError());
  scratch.download(context, answers, answer_bytes);
  std::memcpy(tokens, scratch.host() + answers, answer_bytes);
}

}  // namespace assay
