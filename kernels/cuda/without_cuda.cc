// What a build without the CUDA toolkit answers.
#include "kernels/cuda/cuda_device.h"

namespace assay {

bool cuda_available(std::string* why_not) {
  if (why_not != nullptr) *why_not = "this build runs on the CPU only (it was built without CUDA)";
  return false;
}

std::unique_ptr<Device> make_cuda_device() {
  return nullptr;
}

std::unique_ptr<Ops> make_cuda_ops(Device&, DType) {
  return nullptr;
}

int64_t cuda_free_bytes() {
  return 0;
}

}  // namespace assay
