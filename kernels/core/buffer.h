// Device memory that frees itself.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/device.h"

namespace assay {

class Buffer {
 public:
  Buffer() = default;

  // An empty buffer (data() == nullptr) where there is no room. `bytes` = 0 is a valid empty buffer.
  static Buffer make(Device& device, size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    Buffer buffer;
    if (bytes == 0) return buffer;
    buffer.data_ = device.allocate(bytes, kind);
    if (buffer.data_ == nullptr) return buffer;
    buffer.device_ = &device;
    buffer.bytes_ = bytes;
    buffer.kind_ = kind;
    return buffer;
  }

  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (device_ != nullptr) device_->release(data_, bytes_, kind_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

}  // namespace assay
