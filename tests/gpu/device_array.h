// Device memory for tests: sentinels on both sides, poison inside, so that what is not written and what is written
// beside it both show.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace assay::testing {

#define ASSAY_CUDA_CHECK(call)                                            \
  do {                                                                    \
    const cudaError_t error = (call);                                     \
    if (error != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
      std::abort();                                                       \
    }                                                                     \
  } while (false)

// `count` elements of T in device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count, uint8_t poison = 0xff)
      : count_(count), bytes_((count * sizeof(T) + 15) / 16 * 16) {
    ASSAY_CUDA_CHECK(cudaMalloc(&memory_, bytes_ + 2 * kGuardBytes));
    ASSAY_CUDA_CHECK(cudaMemset(memory_, kSentinel, bytes_ + 2 * kGuardBytes));
    ASSAY_CUDA_CHECK(cudaMemset(data(), poison, count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    upload(values.data(), values.size());
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    EXPECT_TRUE(guards_intact());
    cudaFree(memory_);
  }

  T* data() const { return reinterpret_cast<T*>(memory_ + kGuardBytes); }
  size_t size() const { return count_; }
  void upload(const T* from, size_t count) {
    ASSAY_CUDA_CHECK(cudaMemcpy(data(), from, count * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    ASSAY_CUDA_CHECK(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

  bool guards_intact() const {
    std::vector<uint8_t> before(kGuardBytes), after(kGuardBytes + bytes_ - count_ * sizeof(T));
    ASSAY_CUDA_CHECK(cudaMemcpy(before.data(), memory_, before.size(), cudaMemcpyDeviceToHost));
    ASSAY_CUDA_CHECK(
        cudaMemcpy(after.data(), memory_ + kGuardBytes + count_ * sizeof(T), after.size(), cudaMemcpyDeviceToHost));
    for (uint8_t byte : before) {
      if (byte != kSentinel) return false;
    }
    for (uint8_t byte : after) {
      if (byte != kSentinel) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuardBytes = 1024;
  static constexpr uint8_t kSentinel = 0xa5;
  size_t count_, bytes_;
  uint8_t* memory_ = nullptr;
};

}  // namespace assay::testing
