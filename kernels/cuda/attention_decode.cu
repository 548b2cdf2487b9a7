#include <cmath>
#include <cstdlib>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/decode_kernel.cuh"

namespace assay {
namespace {

// Largest relative error of a weight that multiplies values: its rounding to a half; what is too small for a normal
// half, the power of two and the accumulators are far inside the rest.
constexpr float kWeightRounding = 0x1p-11f + 0x1p-15f;

// ---- Merging the pieces of a head, the sequence's own row, and the way back to the model's channels

template <int D>
struct Merged {
  PieceSums sums;  // of this lane's pieces where not yet summed
  float out[WarpRow<D>::kCount];
};

template <int D>
__device__ __forceinline__ void rescale_merged(Merged<D>& m, float new_max) {
  const float factor = share(m.sums.logit_max, new_max);
  m.sums.logit_max = new_max;
  m.sums.weight *= factor;
  m.sums.b1 *= factor;
  m.sums.b2 *= factor;
  m.sums.value_error *= factor;
#pragma unroll
  for (float& x : m.out) x *= factor;
}

// Pieces [first, end) of an item, every `stride`-th; `item` and head `h` name their places.
template <int D>
__device__ __forceinline__ Merged<D> merge_pieces(const DecodeParams& p, int item, int h, int first, int end,
                                                  int stride) {
  constexpr int n = WarpRow<D>::kCount;
  Merged<D> m{};
  m.sums.logit_max = kNoLogit;
  const auto place = [&](int block) {
    return static_cast<int64_t>(DecodeCut::piece(block, item)) * p.shape.heads_per_lane + h;
  };
  for (int chunk = first; chunk < end; chunk += 32 * stride) {
    const int block = chunk + lane_id() * stride;
    PieceSums mine{};
    mine.logit_max = kNoLogit;
    if (block < end) mine = p.scratch.sums[place(block)];
    rescale_merged(m, fmaxf(m.sums.logit_max, warp_max(mine.logit_max)));
    const float factor = share(mine.logit_max, m.sums.logit_max);
    add_sums(m.sums, mine, factor);
    const int count = min(32, (end - chunk + stride - 1) / stride);
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      const float weight = __shfl_sync(kAllLanes, factor, i);
      const float* from = p.scratch.outputs + place(chunk + i * stride) * D + lane_id() * n;
#pragma unroll
      for (int c = 0; c < n; ++c) m.out[c] = fmaf(weight, from[c], m.out[c]);
    }
  }
  m.sums.weight = warp_sum(m.sums.weight);
  m.sums.b1 = warp_sum(m.sums.b1);
  m.sums.b2 = warp_sum(m.sums.b2);
  m.sums.value_error = warp_sum(m.sums.value_error);
  m.sums.radius_max = warp_max(m.sums.radius_max);
  m.sums.value_norm_low = warp_max(m.sums.value_norm_low);
  return m;
}

// The same over the warps of a head; warp 0 of them gets the whole.
template <int D, int kWarps>
__device__ __forceinline__ void merge_warps(Merged<D>& m, int warp) {
  if constexpr (kWarps > 1) {
    __shared__ Merged<D> parts[kWarps][32];
    parts[warp][lane_id()] = m;
    __syncthreads();
    if (warp != 0) return;
    for (int w = 1; w < kWarps; ++w) {
      const Merged<D>& other = parts[w][lane_id()];
      rescale_merged(m, fmaxf(m.sums.logit_max, other.sums.logit_max));
      const float factor = share(other.sums.logit_max, m.sums.logit_max);
      add_sums(m.sums, other.sums, factor);
#pragma unroll
      for (int c = 0; c < WarpRow<D>::kCount; ++c) m.out[c] = fmaf(factor, other.out[c], m.out[c]);
    }
  }
}

__device__ __forceinline__ kv::MeterSums<float> natural(const PieceSums& from) {
  kv::MeterSums<float> sums;
  sums.logit_max = from.logit_max * kLn2;
  sums.weight = from.weight;
  sums.b1 = from.b1;
  sums.b2 = from.b2;
  sums.radius_max = from.radius_max;
  sums.value_error = from.value_error;
  return sums;
}

// The row of this step, read exactly from qkv: its logit and radius, and its value.
template <int D>
struct OwnRow {
  float logit;  // base 2
  kv::MeterSums<float> sums;
  WarpRow<D> value;
};

template <int D>
__device__ __forceinline__ OwnRow<D> own_row(const DecodeParams& p, int sequence, int head) {
  const int64_t at = sequence * p.row_stride;
  const int kv_head = head / p.shape.group;
  const WarpRow<D> q = load_row<D>(p.qkv_dtype, p.qkv, at + static_cast<int64_t>(head) * D);
  const WarpRow<D> k = load_row<D>(p.qkv_dtype, p.qkv, at + static_cast<int64_t>(p.shape.num_heads + kv_head) * D);
  OwnRow<D> own;
  own.value = load_row<D>(p.qkv_dtype, p.qkv,
                          at + static_cast<int64_t>(p.shape.num_heads + p.shape.num_kv_heads + kv_head) * D);
  float dot = 0.0f;
#pragma unroll
  for (int i = 0; i < WarpRow<D>::kCount; ++i) dot = fmaf(q.x[i], k.x[i], dot);
  const float logit = warp_sum(dot) * p.softmax_scale;
  own.logit = logit * kLog2E;
  const float radius = kv::bypass_radius(p.softmax_scale, kv::norm_up_from_squares(square_sum(q), D), D) *
                       kv::norm_up_from_squares(square_sum(k), D);
  kv::add_token(own.sums, logit, radius, 0.0f);
  return own;
}

__device__ void store_cell(const DecodeParams& p, const PieceSums& stored, const kv::MeterSums<float>& own, int row,
                           int head, int stored_tokens, int serial_terms) {
  const int index = p.meter.num_metered > 0 ? p.meter.cell_of_row[row] : -1;
  if (index < 0) return;
  kv::MeterCell cell;
  cell.certain = kv::merge(natural(stored), own);
  cell.conditional = cell.certain;
  cell.value_norm_low = stored.value_norm_low;
  cell.compressed_tokens = stored_tokens;
  cell.serial_terms = serial_terms;
  cell.weight_rounding = kWeightRounding;
  p.meter.cells[static_cast<int64_t>(index) * p.meter.num_heads + head] = cell;
}

template <int kWarps>
constexpr int kCombineThreads = kWarps > 4 ? kWarps * 32 : 128;

// kWarps warps a head of a sequence.
template <int D, bool kCompressed, int kWarps>
__global__ void __launch_bounds__(kCombineThreads<kWarps>) combine_kernel(const __grid_constant__ DecodeParams p) {
  constexpr int n = WarpRow<D>::kCount;
  let_next_start();
  wait_for_inputs();
  const int index = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32) / kWarps;
  const int sequence = index / p.shape.num_heads, head = index % p.shape.num_heads;
  if (sequence >= p.shape.num_sequences) return;
  const int warp = threadIdx.x / 32 % kWarps, in_group = head % p.shape.group;
  const int lane = head / p.shape.group * p.shape.lanes_per_head + in_group / kLaneHeads;
  const int item = sequence * p.shape.lanes() + lane;
  const int first = p.scratch.first_tile[sequence];
  const int tiles = p.scratch.first_tile[sequence + 1] - first;
  const DecodeCut cut(p.scratch.first_tile[p.shape.num_sequences] * p.shape.lanes(), p.shape.max_blocks);
  OwnRow<D> own;
  WarpRow<D> signs;
  if (kCompressed && warp == 0) {
    own = own_row<D>(p, sequence, head);
    for (int i = 0; i < n && p.cache.tables.signs != nullptr; ++i) signs.x[i] = p.cache.tables.signs[lane_id() * n + i];
  }
  Merged<D> m{};
  m.sums.logit_max = kNoLogit;
  int pieces = 0;
  if (tiles > 0) {
    const int begin = first * p.shape.lanes() + lane * tiles;
    const int first_block = cut.block_of(begin), end_block = cut.block_of(begin + tiles - 1) + 1;
    pieces = end_block - first_block;
    m = merge_pieces<D>(p, item, in_group % kLaneHeads, first_block + warp, end_block, kWarps);
  }
  merge_warps<D, kWarps>(m, warp);
  if (warp != 0) return;
  WarpRow<D> out;
#pragma unroll
  for (int i = 0; i < n; ++i) out.x[i] = m.out[i];
  float inverse = 1.0f / m.sums.weight;
  if constexpr (kCompressed) {
    if (p.cache.tables.signs != nullptr) rotate_row_back(signs, out);
    const float max = fmaxf(m.sums.logit_max, own.logit);
    const float stored_share = share(m.sums.logit_max, max), own_share = exp2_fast(own.logit - max);
    inverse = 1.0f / (m.sums.weight * stored_share + own_share);
#pragma unroll
    for (int i = 0; i < n; ++i) out.x[i] = fmaf(own.value.x[i], own_share, out.x[i] * stored_share);
    const int per_warp = cut.blocks == 0 ? 0 : (cut.tiles / cut.blocks + kDecodeWarps) / kDecodeWarps;
    if (lane_id() == 0) {
      store_cell(p, m.sums, own.sums, sequence, head, p.positions[sequence], 2 * per_warp + pieces + 48);
    }
  }
#pragma unroll
  for (float& x : out.x) x *= inverse;
  store_row<D>(p.out_dtype, p.out, sequence * p.out_stride + static_cast<int64_t>(head) * D, out);
}

// ---- Launches

template <class Kernel>
void allow_shared(CudaContext& context, Kernel* kernel, size_t bytes) {
  context.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  context.check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
}

constexpr int kMaxBlocksPerMultiprocessor = 4;

// Ranges for each block that fits the device at once. Multiprocessors differ in their share of the memory's bandwidth,
// so where there is much work a second set of ranges evens them out; a range costs a few microseconds to begin.
constexpr int kManyItems = 64;
constexpr int kRangesPerPlace = 1;

int ranges_per_place(const DecodeShape& shape) {
  return shape.num_sequences * shape.lanes() >= kManyItems ? kRangesPerPlace : 1;
}

template <class Pool, int kStages, int kBlocks, bool kMetered>
void launch_pieces(CudaContext& context, DecodeParams& p) {
  static_assert(kBlocks <= kMaxBlocksPerMultiprocessor);
  auto* kernel = decode_kernel<Pool, kStages, kBlocks, kMetered>;
  constexpr size_t bytes = sizeof(DecodeShared<Pool, kStages>);
  static_assert(kBlocks * (bytes + 1024) <= 228 * 1024, "the blocks do not fit a multiprocessor");
  static const bool ready = (allow_shared(context, kernel, bytes), true);
  static_cast<void>(ready);
  p.shape.max_blocks = context.num_multiprocessors * kBlocks * ranges_per_place(p.shape);
  launch_dependent(context, kernel, dim3(p.shape.max_blocks), dim3(kDecodeThreads), bytes, p);
}

template <int D, bool kCompressed, int kWarps>
void launch_combine_with(CudaContext& context, const DecodeParams& p) {
  constexpr int kHeadsPerBlock = kCombineThreads<kWarps> / 32 / kWarps;
  const int heads = p.shape.num_sequences * p.shape.num_heads;
  auto* kernel = combine_kernel<D, kCompressed, kWarps>;
  context.check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  launch_dependent(context, kernel, dim3((heads + kHeadsPerBlock - 1) / kHeadsPerBlock), dim3(kCombineThreads<kWarps>),
                   0, p);
}

// Few heads have many pieces each and get many warps each. The shared memory of a multiprocessor stays divided as the
// decode kernel needs it: a multiprocessor has to be empty to divide it anew.
template <int D, bool kCompressed>
void launch_combine(CudaContext& context, const DecodeParams& p) {
  const int heads = p.shape.num_sequences * p.shape.num_heads;
  if (heads <= context.num_multiprocessors) return launch_combine_with<D, kCompressed, 8>(context, p);
  if (heads <= 4 * context.num_multiprocessors) return launch_combine_with<D, kCompressed, 4>(context, p);
  launch_combine_with<D, kCompressed, 1>(context, p);
}

template <int D>
void launch_for_dim(CudaContext& context, DecodeParams& p) {
  if (is_compressed(p.cache.format)) {
    constexpr int kStages = D == 128 ? 4 : 8, kBlocks = 3;
    if (p.meter.num_metered > 0)
      launch_pieces<CertifiedTiles<D>, kStages, kBlocks, true>(context, p);
    else
      launch_pieces<CertifiedTiles<D>, kStages, kBlocks, false>(context, p);
    return launch_combine<D, true>(context, p);
  }
  constexpr int kStages = D == 128 ? 3 : 4, kBlocks = D == 128 ? 2 : 3;
  if (p.cache.dtype == DType::kBF16)
    launch_pieces<ExactTiles<__nv_bfloat16, D>, kStages, kBlocks, false>(context, p);
  else
    launch_pieces<ExactTiles<__half, D>, kStages, kBlocks, false>(context, p);
  launch_combine<D, false>(context, p);
}

DecodeShape shape_of(const CudaContext& context, const AttentionCall& call) {
  DecodeShape shape{};
  shape.num_sequences = call.batch.num_decodes;
  shape.num_heads = call.shape.num_heads;
  shape.num_kv_heads = call.shape.num_kv_heads;
  shape.group = shape.num_heads / shape.num_kv_heads;
  shape.lanes_per_head = (shape.group + kLaneHeads - 1) / kLaneHeads;
  shape.heads_per_lane = shape.group < kLaneHeads ? shape.group : kLaneHeads;
  shape.max_blocks = context.num_multiprocessors * kMaxBlocksPerMultiprocessor * ranges_per_place(shape);
  shape.own_row_stored = !is_compressed(call.cache.format);
  return shape;
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Places the scratch at `memory`; returns its size.
size_t carve(const DecodeShape& shape, int head_dim, std::byte* memory, DecodeScratch& scratch) {
  const size_t rows = static_cast<size_t>(shape.max_pieces()) * static_cast<size_t>(shape.heads_per_lane);
  const size_t counts = aligned(sizeof(int32_t) * (static_cast<size_t>(shape.num_sequences) + 1));
  const size_t sums = aligned(sizeof(PieceSums) * rows);
  scratch.first_tile = reinterpret_cast<int32_t*>(memory);
  scratch.sums = reinterpret_cast<PieceSums*>(memory + counts);
  scratch.outputs = reinterpret_cast<float*>(memory + counts + sums);
  return counts + sums + aligned(sizeof(float) * rows * static_cast<size_t>(head_dim));
}

}  // namespace

size_t decode_scratch_bytes(const CudaContext& context, const AttentionCall& call) {
  DecodeScratch unused;
  return call.batch.num_decodes == 0 ? 0 : carve(shape_of(context, call), call.shape.head_dim, nullptr, unused);
}

void launch_decode(CudaContext& context, const AttentionCall& call, void* scratch) {
  if (call.batch.num_decodes == 0) return;
  DecodeParams p{};
  p.shape = shape_of(context, call);
  carve(p.shape, call.shape.head_dim, static_cast<std::byte*>(scratch), p.scratch);
  p.cache = call.cache;
  p.layer = call.layer;
  p.positions = call.batch.positions;
  p.page_table = call.batch.page_table;
  p.page_table_stride = call.batch.page_table_stride;
  p.qkv = call.qkv.data;
  p.qkv_dtype = call.qkv.dtype;
  p.row_stride = call.qkv.row_stride;
  p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(call.shape.head_dim));
  p.meter = call.meter;
  p.out = call.out.data;
  p.out_dtype = call.out.dtype;
  p.out_stride = call.out.row_stride;
  call.shape.head_dim == 64 ? launch_for_dim<64>(context, p) : launch_for_dim<128>(context, p);
}

}  // namespace assay
