// Reproducible random arrays for kernel tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

inline std::vector<float> random_floats(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A stored matrix of any dtype, with the floats it stands for.
struct StoredMatrix {
  StoredMatrix(int64_t rows, int64_t cols, DType dtype, uint32_t seed, float scale = 1.0f)
      : rows(rows), cols(cols), dtype(dtype), floats(random_floats(static_cast<size_t>(rows * cols), seed, scale)) {
    for (float& value : floats) {
      const uint16_t bits = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
      halves.push_back(bits);
      if (dtype == DType::kBF16) value = bf16_to_f32(bits);
      if (dtype == DType::kF16) value = f16_to_f32(bits);
    }
  }
  ConstTensor view() const {
    const void* data = dtype == DType::kF32 ? static_cast<const void*>(floats.data()) : halves.data();
    return {data, dtype, rows, cols, cols};
  }
  int64_t rows, cols;
  DType dtype;
  std::vector<float> floats;
  std::vector<uint16_t> halves;
};

// An exact pool over `memory`.
inline PagedKvView exact_view(void* memory, DType dtype, int32_t layers, int32_t pages, int32_t page_tokens,
                              int32_t kv_heads, int32_t head_dim) {
  PagedKvView view;
  view.base = static_cast<std::byte*>(memory);
  view.dtype = dtype;
  view.num_layers = layers;
  view.num_pages = pages;
  view.page_tokens = page_tokens;
  view.num_kv_heads = kv_heads;
  view.head_dim = head_dim;
  view.record_bytes = ExactRecord::bytes(head_dim, dtype);
  return view;
}

inline Tensor view_of(std::vector<float>& data, int64_t rows, int64_t cols) {
  return {data.data(), DType::kF32, rows, cols, cols};
}

}  // namespace assay
