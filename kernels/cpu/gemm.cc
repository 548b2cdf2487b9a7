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

// A rectangle of the output and what it is made of.
struct LinearBlock {
  const float* x;
  int64_t x_stride;
  const void* w;
  DType w_dtype;
  int64_t w_stride;
  const float* bias;  // [cols]
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

// sums[r * kCols + c] = x row r . w row c over `depth` elements.
template <int R, int C, class W>
HWY_INLINE void dot_tile(const float* x, size_t x_stride, const W* w, size_t w_stride, size_t depth, float* sums) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[R][C];
  for (auto& row : acc) {
    for (auto& a : row) a = hn::Zero(d);
  }
  size_t k = 0;
  for (; k + lanes <= depth; k += lanes) {
    hn::Vec<decltype(d)> wv[C];
    for (int c = 0; c < C; ++c) wv[c] = load_f32(d, w + c * w_stride + k);
    for (int r = 0; r < R; ++r) {
      const auto xv = hn::LoadU(d, x + r * x_stride + k);
      for (int c = 0; c < C; ++c) acc[r][c] = hn::MulAdd(xv, wv[c], acc[r][c]);
    }
  }
  if (k < depth) {
    for (int r = 0; r < R; ++r) {
      const auto xv = load_f32_tail(d, x + r * x_stride + k, depth - k);
      for (int c = 0; c < C; ++c) {
        acc[r][c] = hn::MulAdd(xv, load_f32_tail(d, w + c * w_stride + k, depth - k), acc[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r * kCols + c] = hn::GetLane(hn::SumOfLanes(d, acc[r][c]));
  }
}

template <int R, class W>
HWY_INLINE void dot_tile_of_columns(int cols, const float* x, size_t x_stride, const W* w, size_t w_stride, size_t depth,
                                    float* sums) {
  if (cols == kCols) return dot_tile<R, kCols>(x, x_stride, w, w_stride, depth, sums);
  for (int c = 0; c < cols; ++c) dot_tile<R, 1>(x, x_stride, w + c * w_stride, w_stride, depth, sums + c);
}

// One block of outputs: rows x cols, bias and old output added.
template <class W>
void linear_block(const LinearBlock& block, const W* w, size_t w_stride) {
  float sums[kRows * kCols];
  for (int64_t col = 0; col < block.cols; col += kCols) {
    const int cols = static_cast<int>(std::min<int64_t>(kCols, block.cols - col));
    for (int64_t row = 0; row < block.rows; row += kRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kRows, block.rows - row));
      const float* x = block.x + row * block.x_stride;
      const W* weights = w + col * w_stride;
      switch (rows) {
        case 1: dot_tile_of_columns<1>(cols, x, block.x_stride, weights, w_stride, block.depth, sums); break;
        case 2: dot_tile_of_columns<2>(cols, x, block.x_stride, weights, w_stride, block.depth, sums); break;
#if HWY_TARGET <= HWY_AVX3
        case 3: dot_tile_of_columns<3>(cols, x, block.x_stride, weights, w_stride, block.depth, sums); break;
        case 4: dot_tile_of_columns<4>(cols, x, block.x_stride, weights, w_stride, block.depth, sums); break;
#endif
      }
      for (int r = 0; r < rows; ++r) {
        float* out = block.out + (row + r) * block.out_stride + col;
        for (int c = 0; c < cols; ++c) {
          const float value = sums[r * kCols + c] + block.bias[col + c];
          out[c] = block.accumulate ? out[c] + value : value;
        }
      }
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

// From this many rows on, 16-bit weights are widened once per panel instead of once per row tile.
constexpr int64_t kWidenRows = 16;
constexpr int64_t kBlockRows = 128;
constexpr int64_t kPanelCols = 24;               // a multiple of the register tiles' columns
constexpr int64_t kStreamedBytes = 64 << 10;     // of weights per task when weights are read in place

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
  return std::max<int64_t>(kPanelCols, kStreamedBytes / row_bytes / kPanelCols * kPanelCols);
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

// Weights of the panel as floats in `buffer`; false where they stay in place.
bool widen(const Panel& panel, int64_t rows, float* buffer) {
  const ConstTensor& weight = panel.part->weight;
  if (rows < kWidenRows || weight.dtype == DType::kF32) return false;
  for (int64_t col = 0; col < panel.cols; ++col) {
    convert(weight.dtype, weight.row(panel.first_col + col), weight.cols, buffer + col * weight.cols);
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
    float* buffer = scratch.floats(thread, static_cast<size_t>(bias_floats + kPanelCols * depth));
    LinearBlock block{};
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
      block.w_stride = depth;
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
