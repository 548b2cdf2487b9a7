#include "kernels/cuda/cuda_context.h"

#include <algorithm>

namespace assay {

Workspace::~Workspace() {
  cudaFree(data_);
  for (int i = 0; i < num_outgrown_; ++i) cudaFree(outgrown_[i]);
}

// Grows by half at least, so the outgrown blocks stay few and together smaller than twice the current one.
void* Workspace::take(size_t bytes) {
  if (bytes <= bytes_) return data_;
  void* larger = nullptr;
  const size_t wanted = std::max(bytes, bytes_ + bytes_ / 2);
  if (num_outgrown_ == kMaxOutgrown || cudaMalloc(&larger, wanted) != cudaSuccess) return nullptr;
  if (data_ != nullptr) outgrown_[num_outgrown_++] = data_;
  data_ = larger;
  bytes_ = wanted;
  return data_;
}

SideStream::~SideStream() {
  if (stream_ == nullptr) return;
  cudaEventDestroy(forked_);
  cudaEventDestroy(done_);
  cudaStreamDestroy(stream_);
}

void SideStream::begin(CudaContext& context) {
  if (stream_ == nullptr) {
    context.check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    context.check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
    context.check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
  }
  context.check(cudaEventRecord(forked_, context.stream));
  context.check(cudaStreamWaitEvent(stream_, forked_, 0));
  main_ = context.stream;
  context.stream = stream_;
}

void SideStream::end(CudaContext& context) {
  context.check(cudaEventRecord(done_, stream_));
  context.stream = main_;
  busy_ = true;
}

void SideStream::join(CudaContext& context) {
  if (!busy_) return;
  context.check(cudaStreamWaitEvent(context.stream, done_, 0));
  busy_ = false;
}

}  // namespace assay
