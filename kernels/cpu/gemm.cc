#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/elements.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/load-inl.h"

#ifndef ASSAY_LINEAR_BLOCK
#define ASSAY_LINEAR_BLOCK
namespace assay {

// From this many rows on, 16-bit weights are widened once per panel instead of once per row tile.
constexpr int64_t kWidenRows = 16;
constexpr int64_t kBlockRows = 128;
constexpr int64_t kGroupRows = 32;
constexpr int64_t kPanelCols = 24;  // a multiple of the register tiles' columns
constexpr int64_t kMaxLanes = 16;   // floats of the widest vectors
constexpr int64_t kStateFloats = kBlockRows * kPanelCols * kMaxLanes;
constexpr int64_t kStreamedCols = kBlockRows * kPanelCols / kWidenRows;  // most columns of a panel of few rows

// A rectangle of the output and what it is made of.
struct LinearBlock {
  const float* x;
  int64_t x_stride;
  const void* w;
  DType w_dtype;
  int64_t w_stride;
  const float* bias;  // [cols]
  float* state;       // [kStateFloats] partial sums
  float* out;
  int64_t out_stride;
  int64_t rows, cols, depth;
  bool accumulate;
};

}  // namespace assay
#endif

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Register tile: kRows x kCols accumulators plus their operands fit the vector registers (32 with AVX-512, else 16).
#if HWY_TARGET <= HWY_AVX3
constexpr int kRows = 4, kCols = 6;
#else
constexpr int kRows = 2, kCols = 4;
#endif

// Elements of the inner dimension of which a tile of weights stays in the first-level cache.
constexpr size_t kDepthBlock = 1024;

#if HWY_TARGET != HWY_SCALAR
// Stores the sums of the lanes of the 128-bit blocks of v, one per 32-bit column: 4 floats.
template <class D>
HWY_INLINE void store_block_sums(D d, hn::Vec<D> v, float* to) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_block_sums(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}
#endif

// sums[0..3] = the sums of the lanes of four vectors by the same tree, for little more than the price of one.
template <class D>
HWY_INLINE void sum_lanes_of_four(D d, hn::Vec<D> v0, hn::Vec<D> v1, hn::Vec<D> v2, hn::Vec<D> v3, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  const hn::Vec<D> v[4] = {v0, v1, v2, v3};
  for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(v[i]);
  (void)d;
#else
  const auto v02 = hn::Add(hn::InterleaveLower(d, v0, v2), hn::InterleaveUpper(d, v0, v2));
  const auto v13 = hn::Add(hn::InterleaveLower(d, v1, v3), hn::InterleaveUpper(d, v1, v3));
  store_block_sums(d, hn::Add(hn::InterleaveLower(d, v02, v13), hn::InterleaveUpper(d, v02, v13)), sums);
#endif
}

// Partial sums [R][C] (vectors) in `state`: set to (kFirst) or increased by x row r . w row c over `depth` elements,
// lane by lane. depth is a multiple of the lanes.
template <int R, int C, bool kFirst, class W>
HWY_INLINE void dot_tile(const float* x, size_t x_stride, const W* w, size_t w_stride, size_t depth,
                         float* HWY_RESTRICT state) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) acc[r][c] = kFirst ? hn::Zero(d) : hn::Load(d, state + (r * C + c) * lanes);
  }
  for (size_t k = 0; k < depth; k += lanes) {
    hn::Vec<decltype(d)> wv[C];
    for (int c = 0; c < C; ++c) wv[c] = load_f32(d, w + c * w_stride + k);
    for (int r = 0; r < R; ++r) {
      const auto xv = hn::LoadU(d, x + r * x_stride + k);
      for (int c = 0; c < C; ++c) acc[r][c] = hn::MulAdd(xv, wv[c], acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) hn::Store(acc[r][c], d, state + (r * C + c) * lanes);
  }
}

// The last `count` < lanes elements.
template <int R, int C, class W>
HWY_NOINLINE void dot_tail(const float* x, size_t x_stride, const W* w, size_t w_stride, size_t count, float* state) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (int r = 0; r < R; ++r) {
    const auto xv = load_f32_tail(d, x + r * x_stride, count);
    for (int c = 0; c < C; ++c) {
      float* sum = state + (r * C + c) * lanes;
      hn::Store(hn::MulAdd(xv, load_f32_tail(d, w + c * w_stride, count), hn::Load(d, sum)), d, sum);
    }
  }
}

// sums[i] = the sum of the lanes of vector i of `state`; sums has room for a multiple of four.
HWY_INLINE void sum_state(const float* state, int count, float* sums) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto vector = [&](int i) { return i < count ? hn::Load(d, state + i * lanes) : hn::Zero(d); };
  for (int i = 0; i < count; i += 4) {
    sum_lanes_of_four(d, vector(i), vector(i + 1), vector(i + 2), vector(i + 3), sums + i);
  }
}

HWY_INLINE void store_tile(const LinearBlock& block, int64_t row, int64_t col, int rows, int cols, const float* sums) {
  for (int r = 0; r < rows; ++r) {
    float* out = block.out + (row + r) * block.out_stride + col;
    for (int c = 0; c < cols; ++c) {
      const float value = sums[r * cols + c] + block.bias[col + c];
      out[c] = block.accumulate ? out[c] + value : value;
    }
  }
}

// One part [begin, end) of the inner dimension.
struct DepthRange {
  size_t begin, end;
  bool last;
};

// Rows [row, end) of C columns, R at a time, over one part of the inner dimension; after the last part the results are
// stored. Returns the state of the next tile.
template <int R, int C, class W>
float* linear_rows(const LinearBlock& block, const W* w, size_t w_stride, DepthRange depth, int64_t col, int64_t row,
                   int64_t end, float* state) {
  const size_t x_stride = static_cast<size_t>(block.x_stride);
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>()), tile_floats = static_cast<size_t>(R * C) * lanes;
  for (; row < end; row += R, state += tile_floats) {
    const float* x = block.x + row * block.x_stride + depth.begin;
    const W* weights = w + col * w_stride + depth.begin;
    const size_t whole = (depth.end - depth.begin) / lanes * lanes;
    if (depth.begin == 0) {
      dot_tile<R, C, true>(x, x_stride, weights, w_stride, whole, state);
    } else {
      dot_tile<R, C, false>(x, x_stride, weights, w_stride, whole, state);
    }
    if (!depth.last) continue;
    const size_t rest = depth.end - depth.begin - whole;
    if (rest > 0) dot_tail<R, C>(x + whole, x_stride, weights + whole, w_stride, rest, state);
    float sums[kRows * kCols + 3];
    sum_state(state, R * C, sums);
    store_tile(block, row, col, R, C, sums);
  }
  return state;
}

template <int C, class W>
float* linear_columns(const LinearBlock& block, const W* w, size_t w_stride, DepthRange depth, int64_t col, int64_t row,
                      int64_t end, float* state) {
  const int64_t whole = row + (end - row) / kRows * kRows;
  state = linear_rows<kRows, C>(block, w, w_stride, depth, col, row, whole, state);
  switch (end - whole) {
    case 1:
      return linear_rows<1, C>(block, w, w_stride, depth, col, whole, end, state);
#if HWY_TARGET <= HWY_AVX3
    case 2:
      return linear_rows<2, C>(block, w, w_stride, depth, col, whole, end, state);
    case 3:
      return linear_rows<3, C>(block, w, w_stride, depth, col, whole, end, state);
#endif
  }
  return state;
}

// Many rows: the inner dimension goes in parts, and the rows of a part in groups, so that x and the weights stay in the
// caches; partial sums wait as vectors between parts. Few rows: weights are read once, straight through.
template <class W>
void linear_block(const LinearBlock& block, const W* w, size_t w_stride) {
  const size_t depth = static_cast<size_t>(block.depth), part = block.rows >= kWidenRows ? kDepthBlock : depth;
  for (size_t k = 0; k < depth; k += part) {
    const DepthRange range{k, std::min(depth, k + part), k + part >= depth};
    float* state = block.state;
    for (int64_t row = 0; row < block.rows; row += kGroupRows) {
      const int64_t end = std::min(block.rows, row + kGroupRows);
      int64_t col = 0;
      for (; col + kCols <= block.cols; col += kCols) {
        state = linear_columns<kCols>(block, w, w_stride, range, col, row, end, state);
      }
      for (; col < block.cols; ++col) state = linear_columns<1>(block, w, w_stride, range, col, row, end, state);
    }
  }
}

void LinearBlockKernel(const LinearBlock& block) {
  with_elements(block.w_dtype, block.w, [&](const auto* w) { linear_block(block, w, block.w_stride); });
}

void ConvertKernel(DType dtype, const void* from, size_t count, float* to) {
  with_elements(dtype, from, [&](const auto* elements) { convert_to_f32(elements, count, to); });
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(LinearBlockKernel);
HWY_EXPORT(ConvertKernel);

namespace {

constexpr int64_t kStreamedBytes = 64 << 10;  // of weights per task when weights are read in place

struct Panel {
  const LinearPart* part;
  int64_t first_col;  // of the part
  int64_t cols;
  int64_t out_col;
};

std::vector<Panel> make_panels(std::span<const LinearPart> parts, int64_t panel_cols) {
  std::vector<Panel> panels;
  int64_t out_col = 0;
  for (const LinearPart& part : parts) {
    for (int64_t col = 0; col < part.weight.rows; col += panel_cols) {
      panels.push_back({&part, col, std::min(panel_cols, part.weight.rows - col), out_col + col});
    }
    out_col += part.weight.rows;
  }
  return panels;
}

int64_t panel_columns(int64_t rows, const ConstTensor& weight) {
  if (rows >= kWidenRows) return kPanelCols;
  const int64_t row_bytes = weight.cols * static_cast<int64_t>(dtype_bytes(weight.dtype));
  return std::clamp(kStreamedBytes / row_bytes / kPanelCols * kPanelCols, kPanelCols, kStreamedCols);
}

void convert(DType dtype, const void* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(ConvertKernel)(dtype, from, static_cast<size_t>(count), to);
}

const float* panel_bias(const Panel& panel, float* buffer) {
  const ConstTensor& bias = panel.part->bias;
  if (!bias) {
    std::fill_n(buffer, panel.cols, 0.0f);
    return buffer;
  }
  const int64_t offset = panel.first_col * static_cast<int64_t>(dtype_bytes(bias.dtype));
  convert(bias.dtype, static_cast<const std::byte*>(bias.data) + offset, panel.cols, buffer);
  return buffer;
}

// A little more than the depth: rows a power of two apart would compete for the same lines of the caches.
int64_t widened_stride(int64_t depth) {
  return (depth + kMaxLanes - 1) / kMaxLanes * kMaxLanes + kMaxLanes;
}

// Weights of the panel as floats in `buffer`; false where they stay in place.
bool widen(const Panel& panel, int64_t rows, float* buffer) {
  const ConstTensor& weight = panel.part->weight;
  if (rows < kWidenRows || weight.dtype == DType::kF32) return false;
  for (int64_t col = 0; col < panel.cols; ++col) {
    convert(weight.dtype, weight.row(panel.first_col + col), weight.cols, buffer + col * widened_stride(weight.cols));
  }
  return true;
}

}  // namespace

void cpu_linear(ThreadPool& pool, Scratch& scratch, ConstTensor x, std::span<const LinearPart> parts, bool accumulate,
                Tensor out) {
  const int64_t panel_cols = panel_columns(x.rows, parts[0].weight);
  const std::vector<Panel> panels = make_panels(parts, panel_cols);
  const int64_t row_blocks = (x.rows + kBlockRows - 1) / kBlockRows;
  const int64_t depth = x.cols;
  pool.parallel_for(static_cast<int64_t>(panels.size()) * row_blocks, [&](int64_t task, int thread) {
    const Panel& panel = panels[static_cast<size_t>(task / row_blocks)];
    const int64_t first_row = task % row_blocks * kBlockRows;
    const int64_t bias_floats = (panel_cols + 15) / 16 * 16;
    float* buffer =
        scratch.floats(thread, static_cast<size_t>(kStateFloats + bias_floats + kPanelCols * widened_stride(depth)));
    LinearBlock block{};
    block.state = buffer;
    buffer += kStateFloats;
    block.rows = std::min(kBlockRows, x.rows - first_row);
    block.cols = panel.cols;
    block.depth = depth;
    block.x = x.f32() + first_row * x.row_stride;
    block.x_stride = x.row_stride;
    block.bias = panel_bias(panel, buffer);
    block.out = out.f32() + first_row * out.row_stride + panel.out_col;
    block.out_stride = out.row_stride;
    block.accumulate = accumulate;
    if (widen(panel, x.rows, buffer + bias_floats)) {
      block.w = buffer + bias_floats;
      block.w_dtype = DType::kF32;
      block.w_stride = widened_stride(depth);
    } else {
      block.w = panel.part->weight.row(panel.first_col);
      block.w_dtype = panel.part->weight.dtype;
      block.w_stride = panel.part->weight.row_stride;
    }
    HWY_DYNAMIC_DISPATCH(LinearBlockKernel)(block);
  });
}

}  // namespace assay
#endif  // HWY_ONCE
