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

struct CudaContext;

// A second stream, for work that nothing on the first needs soon: it runs beside what follows there until they are
// joined. Works in a capture too, when it was used once before.
class SideStream {
 public:
  SideStream() = default;
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  ~SideStream();

  // What is launched between the two goes to the side, behind all that was issued so far.
  void begin(CudaContext& context);
  void end(CudaContext& context);
  // What is issued from here on waits for the side; nothing where it is idle.
  void join(CudaContext& context);

 private:
  cudaStream_t stream_ = nullptr, main_ = nullptr;
  cudaEvent_t forked_ = nullptr, done_ = nullptr;
  bool busy_ = false;
};

struct CudaContext {
  cudaStream_t stream = nullptr;
  int num_multiprocessors = 0;
  size_t max_shared_bytes_per_block = 0;  // with opt-in
  Workspace workspace;
  SideStream side;
  cudaError_t first_error = cudaSuccess;  // told by Device::synchronize

  // Keeps the first failure. Launches are followed by check(cudaPeekAtLastError()).
  void check(cudaError_t error) {
    if (error != cudaSuccess && first_error == cudaSuccess) first_error = error;
  }
};

}  // namespace assay
