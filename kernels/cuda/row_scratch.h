// Memory that carries the inputs and answers of `sample` and `logprobs` between host and device: pinned on one side,
// device on the other. Grows to the largest call. Threads: one at a time. Errors: kept in the context.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_context.h"

namespace assay {

class RowScratch {
 public:
  RowScratch() = default;
  RowScratch(const RowScratch&) = delete;
  RowScratch& operator=(const RowScratch&) = delete;
  ~RowScratch() { release(); }

  // Room for `bytes` on both sides; false where there is none. What was there is gone. The stream must be idle with
  // respect to earlier calls (both users wait for their answers).
  bool reserve(CudaContext& context, size_t bytes) {
    if (bytes <= bytes_) return true;
    release();
    bytes += bytes / 2;
    context.check(cudaMallocHost(&host_, bytes));
    context.check(cudaMalloc(&device_, bytes));
    if (host_ != nullptr && device_ != nullptr) bytes_ = bytes;
    return bytes_ != 0;
  }

  std::byte* host() const { return static_cast<std::byte*>(host_); }
  std::byte* device() const { return static_cast<std::byte*>(device_); }

  // The first `bytes` bytes, asynchronously.
  void upload(CudaContext& context, size_t bytes) {
    context.check(cudaMemcpyAsync(device_, host_, bytes, cudaMemcpyHostToDevice, context.stream));
  }
  // Bytes [offset, offset + bytes), waiting for them.
  void download(CudaContext& context, size_t offset, size_t bytes) {
    context.check(cudaMemcpyAsync(host() + offset, device() + offset, bytes, cudaMemcpyDeviceToHost, context.stream));
    context.check(cudaStreamSynchronize(context.stream));
  }

 private:
  void release() {
    cudaFreeHost(host_);
    cudaFree(device_);
    host_ = device_ = nullptr;
    bytes_ = 0;
  }

  void* host_ = nullptr;
  void* device_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace assay
