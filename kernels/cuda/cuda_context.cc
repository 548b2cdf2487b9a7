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

}  // namespace assay
