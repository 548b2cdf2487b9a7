// What the launches of one Ops share: the stream, scratch memory, and the first error of any of them.
//
// Owns: the scratch. Threads: one at a time. Every launch function of this folder takes one and is asynchronous on
// `stream`: no allocation but Workspace::take, no host synchronisation, no host read of device memory, so that what it
// issues can be captured in a graph.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace assay {

// Scratch of the operations of one stream. What take() gave is valid until the next take() on the same workspace: the
// operations of a stream run one after another, so they may share it. An operation calls take() once, for all it needs.
// Growing keeps the old memory: work that was captured or issued may still point at it.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  // At least `bytes` bytes aligned to 256, their content unspecified; nullptr where there is no room. Does not grow
  // while a stream is captured: what is captured has run once before.
  void* take(size_t bytes);

 private:
  static constexpr int kMaxOutgrown = 64;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  void* outgrown_[kMaxOutgrown] = {};
  int num_outgrown_ = 0;
};

struct CudaContext {
  cudaStream_t stream = nullptr;
  int num_multiprocessors = 0;
  size_t max_shared_bytes_per_block = 0;  // with opt-in
  Workspace workspace;
  cudaError_t first_error = cudaSuccess;  // told by Device::synchronize

  // Keeps the first failure. Launches are followed by check(cudaPeekAtLastError()).
  void check(cudaError_t error) {
    if (error != cudaSuccess && first_error == cudaSuccess) first_error = error;
  }
};

}  // namespace assay
