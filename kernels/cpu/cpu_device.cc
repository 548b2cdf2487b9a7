#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>

#include <cstring>

#include "hwy/targets.h"

namespace assay {

std::string CpuDevice::description() const {
  const int64_t best = hwy::SupportedTargets() & -hwy::SupportedTargets();  // lower bits are better targets
  return "cpu (" + std::to_string(num_threads_) + (num_threads_ == 1 ? " thread, " : " threads, ") +
         hwy::TargetName(best) + ")";
}

// Pages are committed when first touched, so a large cache costs what is used of it.
void* CpuDevice::allocate(size_t bytes, MemoryKind) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: fewer TLB misses where it is granted
  return data;
}

void CpuDevice::release(void* data, size_t bytes, MemoryKind) {
  munmap(data, bytes);
}

KernelError CpuDevice::copy_to_device(void* device, const void* host, size_t bytes) {
  std::memcpy(device, host, bytes);
  return KernelError::kOk;
}

KernelError CpuDevice::copy_to_host(void* host, const void* device, size_t bytes) {
  std::memcpy(host, device, bytes);
  return KernelError::kOk;
}

}  // namespace assay
