// Reproducible random arrays for kernel tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/core/tensor.h"

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

inline Tensor view_of(std::vector<float>& data, int64_t rows, int64_t cols) {
  return {data.data(), DType::kF32, rows, cols, cols};
}

}  // namespace assay
