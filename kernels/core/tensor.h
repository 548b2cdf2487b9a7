// Views of row-major matrices in device memory. They own nothing; a vector is a matrix of one row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/dtype.h"

namespace assay {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // elements between rows, >= cols

  float* f32() const { return static_cast<float*>(data); }
  Tensor first_rows(int64_t count) const { return {data, dtype, count, cols, row_stride}; }
};

// The same, read only. `data == nullptr`: absent (for example no bias).
struct ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;

  ConstTensor() = default;
  ConstTensor(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t row_stride)
      : data(data), dtype(dtype), rows(rows), cols(cols), row_stride(row_stride) {}
  ConstTensor(const Tensor& t) : ConstTensor(t.data, t.dtype, t.rows, t.cols, t.row_stride) {}  // NOLINT: a view

  explicit operator bool() const { return data != nullptr; }
  const float* f32() const { return static_cast<const float*>(data); }
  const std::byte* row(int64_t index) const {
    return static_cast<const std::byte*>(data) + index * row_stride * static_cast<int64_t>(dtype_bytes(dtype));
  }
};

}  // namespace assay
