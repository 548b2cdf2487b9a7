// Device memory for kernel tests: sentinels on both sides, poison inside, values in and out as floats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/buffer.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"

namespace assay {

// One device for the whole test program.
inline Device& gpu() {
  static const std::unique_ptr<Device> device = make_cuda_device();
  if (device == nullptr) {
    std::string why;
    cuda_available(&why);
    std::fprintf(stderr, "no GPU to test: %s\n", why.c_str());
    std::abort();
  }
  return *device;
}

inline Ops& gpu_ops(DType dtype) {
  static const std::unique_ptr<Ops> bf16 = make_cuda_ops(gpu(), DType::kBF16), f16 = make_cuda_ops(gpu(), DType::kF16);
  return dtype == DType::kF16 ? *f16 : *bf16;
}

inline float rounded(DType dtype, float x) {
  if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(std::clamp(x, -kMaxF16, kMaxF16)));
  return x;
}

// One rounding to the dtype, relative.
inline double rounding_of(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

// Bytes on the device between two guards of 0xA5; 0xFF (NaN in every dtype) inside until something is written.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes) : bytes_(bytes), buffer_(Buffer::make(gpu(), bytes + 2 * kGuard)) {
    std::vector<std::byte> all(bytes + 2 * kGuard, std::byte{0xA5});
    std::fill_n(all.begin() + kGuard, bytes, std::byte{0xFF});
    EXPECT_EQ(gpu().copy_to_device(buffer_.data(), all.data(), all.size()), KernelError::kOk);
  }
  ~GuardedBytes() {
    std::vector<std::byte> all(bytes_ + 2 * kGuard);
    EXPECT_EQ(gpu().copy_to_host(all.data(), buffer_.data(), all.size()), KernelError::kOk) << gpu().error_text();
    const auto intact = [](std::byte b) { return b == std::byte{0xA5}; };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kGuard, intact)) << "written before the buffer";
    EXPECT_TRUE(std::all_of(all.end() - kGuard, all.end(), intact)) << "written behind the buffer";
  }
  void* data() const { return static_cast<std::byte*>(buffer_.data()) + kGuard; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kGuard = 1024;
  size_t bytes_;
  Buffer buffer_;
};

template <class T>
class GpuArray {
 public:
  explicit GpuArray(const std::vector<T>& values) : memory_(values.size() * sizeof(T)) { set(values); }
  explicit GpuArray(size_t count) : memory_(count * sizeof(T)) {}
  void set(const std::vector<T>& values) {
    EXPECT_EQ(gpu().copy_to_device(memory_.data(), values.data(), values.size() * sizeof(T)), KernelError::kOk);
  }
  std::vector<T> values() const {
    std::vector<T> out(memory_.bytes() / sizeof(T));
    EXPECT_EQ(gpu().copy_to_host(out.data(), memory_.data(), memory_.bytes()), KernelError::kOk) << gpu().error_text();
    return out;
  }
  T* data() const { return static_cast<T*>(memory_.data()); }

 private:
  GuardedBytes memory_;
};

// A matrix of any dtype on the device.
class GpuMatrix {
 public:
  GpuMatrix(int64_t rows, int64_t cols, DType dtype)
      : rows_(rows), cols_(cols), dtype_(dtype), memory_(static_cast<size_t>(rows * cols) * dtype_bytes(dtype)) {}
  // The floats are rounded to the dtype; `floats` becomes what is stored.
  GpuMatrix(int64_t rows, int64_t cols, DType dtype, std::vector<float>& floats) : GpuMatrix(rows, cols, dtype) {
    set(floats);
  }
  void set(std::vector<float>& floats) {
    std::vector<uint16_t> halves;
    for (float& x : floats) {
      x = rounded(dtype_, x);
      halves.push_back(dtype_ == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x));
    }
    const void* from = dtype_ == DType::kF32 ? static_cast<const void*>(floats.data()) : halves.data();
    EXPECT_EQ(gpu().copy_to_device(memory_.data(), from, memory_.bytes()), KernelError::kOk);
  }
  std::vector<float> floats() const {
    std::vector<std::byte> raw(memory_.bytes());
    EXPECT_EQ(gpu().copy_to_host(raw.data(), memory_.data(), raw.size()), KernelError::kOk) << gpu().error_text();
    std::vector<float> out(static_cast<size_t>(rows_ * cols_));
    for (size_t i = 0; i < out.size(); ++i) out[i] = load_as_f32(dtype_, raw.data(), static_cast<int64_t>(i));
    return out;
  }
  Tensor view() const { return {memory_.data(), dtype_, rows_, cols_, cols_}; }

 private:
  int64_t rows_, cols_;
  DType dtype_;
  GuardedBytes memory_;
};

// Every element within `relative` of its size (or of `floor`).
inline void expect_close(const std::vector<float>& got, const std::vector<double>& expected, double relative,
                         double floor) {
  ASSERT_EQ(got.size(), expected.size());
  double worst = 0.0;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]) / std::max(std::abs(expected[i]), floor);
    if (!(error <= worst)) worst = error, at = i;
    if (std::isnan(error)) break;
  }
  EXPECT_LE(worst, relative) << "element " << at << ": " << got[at] << ", expected " << expected[at];
}

}  // namespace assay
