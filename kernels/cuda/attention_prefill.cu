// Prefill attention: 128 (row, head of the group) pairs a block of threads, 32 a warp, 64 tokens at a time, a running
// softmax in registers. Exact pool: every row is read from the cache. Compressed pool: first the stored prefix in the
// rotated domain, as levels with their scales apart; the sums are rotated back in registers; then the slice's own rows.
#include <cmath>

#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/prefill_parts.cuh"

namespace assay {
namespace {

// Largest |v| of the stored pages, rounded down.
template <int D>
__device__ void find_value_norm(const PrefillParams& p, const PrefillTask& task, PrefillShared<D>& shared) {
  if (threadIdx.x == 0) shared.value_norm = 0;
  __syncthreads();
  const uint16_t* norms = p.cache.value_norms(p.layer, task.kv_head);
  uint32_t largest = 0;
  for (int i = threadIdx.x; i * p.cache.page_tokens < task.first; i += kPrefillThreads) {
    largest = max(largest, static_cast<uint32_t>(norms[task.pages[i]]));
  }
  atomicMax(&shared.value_norm, largest);
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

template <class T, int D>
__device__ void store_cells(const PrefillParams& p, const PrefillTask& task, const PrefillShared<D>& shared,
                            const WarpRows<D>& rows) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (!rows.metered[m]) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int pair = pair_of(m, h), index = shared.pairs.cell[pair];
      kv::MeterCell cell;
      cell.certain.logit_max = rows.max[m][h] * kLn2;
      cell.certain.weight = quad_sum(rows.weight[m][h]);
      const int slot = m * 2 + h, t = threadIdx.x;
      cell.certain.b1 = quad_sum(shared.meter.b1[slot][t]);
      cell.certain.b2 = quad_sum(shared.meter.b2[slot][t]);
      cell.certain.value_error = quad_sum(shared.meter.value_error[slot][t]);
      cell.certain.radius_max = quad_max(shared.meter.radius_max[slot][t]);
      cell.conditional = cell.certain;
      cell.compressed_tokens = task.first;
      cell.value_norm_low = task.first > 0 ? kv::half_to_float(static_cast<uint16_t>(shared.value_norm)) : 0.0f;
      cell.serial_terms = (task.first + task.rows) / 4 + 2 * kBlockTokens;
      cell.weight_rounding = kPrefillWeightRounding<T>;
      if (index < 0 || threadIdx.x % 4 != 0) continue;
      const int head = task.kv_head * p.group + (task.first_pair + pair) % p.group;
      p.meter.cells[static_cast<int64_t>(index) * p.meter.num_heads + head] = cell;
    }
  }
}

template <class T, int D>
__device__ void store_outputs(const PrefillParams& p, const PrefillTask& task, const WarpRows<D>& rows) {
  const int place = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float inverse = 1.0f / (quad_sum(rows.weight[m][h]) * rows.lift);
      const int pair = pair_of(m, h), index = task.first_pair + pair;
      if (pair >= task.pairs(p.group)) continue;
      T* to = static_cast<T*>(p.out) + (task.row + index / p.group) * p.out_stride +
              static_cast<int64_t>(task.kv_head * p.group + index % p.group) * D + 2 * place;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            pack_pair<T>(rows.out[m][n][2 * h] * inverse, rows.out[m][n][2 * h + 1] * inverse);
      }
    }
  }
}

// The task of this block; false: none. Late rows, the longest ones, come first.
__device__ __forceinline__ bool find_task(const PrefillParams& p, PrefillTask& task) {
  const int sequence = p.first_sequence + blockIdx.z;
  task.kv_head = blockIdx.x;
  task.row = p.first_row[sequence];
  task.rows = p.first_row[sequence + 1] - task.row;
  task.first_pair = (gridDim.y - 1 - blockIdx.y) * kBlockRows;
  if (task.first_pair >= task.rows * p.group) return false;
  task.first = p.positions[task.row];
  task.pages = p.page_table + static_cast<int64_t>(sequence) * p.page_table_stride;
  return true;
}

// Tokens that each of this lane's rows may see, counted from the slice's start.
__device__ __forceinline__ void find_limits(const PrefillParams& p, const PrefillTask& task, int (&limit)[2][2]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      limit[m][h] = min((task.first_pair + pair_of(m, h)) / p.group, task.rows - 1);
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kPrefillThreads, 2) prefill_exact_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<PrefillShared<D>*>(shared_bytes);
  let_next_start();
  wait_for_inputs();
  PrefillTask task;
  if (!find_task(p, task)) return;
  copy_queries<T, D>(p, task, shared.queries);
  fill_own_factors<D>(p, shared, false);
  WarpRows<D> rows;
  rows.clear(__is_same(T, __half) ? kWeightLift : 1.0f);
  int limit[2][2];
  find_limits(p, task, limit);
#pragma unroll
  for (int i = 0; i < 4; ++i) limit[i / 2][i % 2] += task.first;
  const int first_limit = task.first + task.first_pair / p.group;
  const int last_limit = task.first + (task.first_pair + task.pairs(p.group) - 1) / p.group;
  attend_elements<RecordSource<T, D>, D, false>(p, task, limit, first_limit, last_limit, false, shared, rows);
  store_outputs<T, D>(p, task, rows);
}

// Which pairs are metered; true where any of the block is.
template <int D>
__device__ bool find_cells(const PrefillParams& p, const PrefillTask& task, PrefillShared<D>& shared,
                           WarpRows<D>& rows) {
  const int pair = threadIdx.x;
  int cell = -1;
  if (pair < task.pairs(p.group)) cell = p.meter.cell_of_row[task.row + (task.first_pair + pair) / p.group];
  shared.pairs.cell[pair] = cell;
  shared.meter.clear();
  const bool any = __syncthreads_or(cell >= 0) != 0;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const bool mine = shared.pairs.cell[pair_of(m, 0)] >= 0 || shared.pairs.cell[pair_of(m, 1)] >= 0;
    rows.metered[m] = __any_sync(kAllLanes, mine);
  }
  return any;
}

template <class T, int D, bool kMetered>
__global__ void __launch_bounds__(kPrefillThreads, 2)
    prefill_certified_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ uint8_t shared_bytes[];
  auto& shared = *reinterpret_cast<PrefillShared<D>*>(shared_bytes);
  let_next_start();
  wait_for_inputs();
  PrefillTask task;
  if (!find_task(p, task)) return;
  WarpRows<D> rows;
  rows.clear(1.0f);
  bool metered = false;
  if constexpr (kMetered) {
    metered = find_cells(p, task, shared, rows);
    if (metered) find_value_norm(p, task, shared);
  }
  if (task.first > 0) attend_prefix<D, kMetered>(p, task, metered, shared, rows);
  if (__is_same(T, __half)) rows.change_lift(kWeightLift);
  copy_queries<T, D>(p, task, shared.queries);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  fill_own_factors<D>(p, shared, metered);
  __syncthreads();
  int limit[2][2];
  find_limits(p, task, limit);
  const int first_limit = task.first_pair / p.group;
  const int last_limit = (task.first_pair + task.pairs(p.group) - 1) / p.group;
  attend_elements<OwnSource<T, D>, D, kMetered>(p, task, limit, first_limit, last_limit, metered, shared, rows);
  if constexpr (kMetered) store_cells<T, D>(p, task, shared, rows);
  store_outputs<T, D>(p, task, rows);
}

template <int D, class Kernel>
void launch_blocks(CudaContext& context, Kernel* kernel, const AttentionCall& call, const PrefillParams& p) {
  constexpr int bytes = sizeof(PrefillShared<D>);
  static_assert(2 * (bytes + 1024) <= 228 * 1024, "two blocks do not fit a multiprocessor");
  context.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const int64_t pairs = static_cast<int64_t>(call.batch.max_slice_rows) * p.group;
  const dim3 grid(p.num_kv_heads, static_cast<unsigned>((pairs + kBlockRows - 1) / kBlockRows),
                  call.batch.num_sequences - call.batch.num_decodes);
  launch_dependent(context, kernel, grid, dim3(kPrefillThreads), bytes, p);
}

template <class T, int D>
void launch_for(CudaContext& context, const AttentionCall& call, const PrefillParams& p) {
  if (!is_compressed(p.cache.format)) return launch_blocks<D>(context, prefill_exact_kernel<T, D>, call, p);
  if (p.meter.num_metered > 0) return launch_blocks<D>(context, prefill_certified_kernel<T, D, true>, call, p);
  launch_blocks<D>(context, prefill_certified_kernel<T, D, false>, call, p);
}

}  // namespace

void launch_prefill(CudaContext& context, const AttentionCall& call) {
  if (call.batch.num_sequences == call.batch.num_decodes) return;
  PrefillParams p{};
  p.cache = call.cache;
  p.layer = call.layer;
  p.positions = call.batch.positions;
  p.first_row = call.batch.first_row;
  p.page_table = call.batch.page_table;
  p.page_table_stride = call.batch.page_table_stride;
  p.first_sequence = call.batch.num_decodes;
  p.num_heads = call.shape.num_heads;
  p.num_kv_heads = call.shape.num_kv_heads;
  p.group = p.num_heads / p.num_kv_heads;
  p.qkv = call.qkv.data;
  p.dtype = call.qkv.dtype;
  p.row_stride = call.qkv.row_stride;
  p.out = call.out.data;
  p.out_stride = call.out.row_stride;
  p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  p.meter = call.meter;
  const bool wide = call.shape.head_dim == 128;
  if (p.dtype == DType::kBF16)
    wide ? launch_for<__nv_bfloat16, 128>(context, call, p) : launch_for<__nv_bfloat16, 64>(context, call, p);
  else
    wide ? launch_for<__half, 128>(context, call, p) : launch_for<__half, 64>(context, call, p);
}

}  // namespace assay
