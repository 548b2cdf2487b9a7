// The CPU as a device: anonymous memory, plain copies.
#pragma once

#include "kernels/device.h"

namespace assay {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : num_threads_(num_threads) {}

  std::string description() const override;
  void* allocate(size_t bytes, MemoryKind kind) override;
  void release(void* data, size_t bytes, MemoryKind kind) override;
  KernelError copy_to_device(void* device, const void* host, size_t bytes) override;
  KernelError copy_to_host(void* host, const void* device, size_t bytes) override;
  KernelError synchronize() override { return KernelError::kOk; }

 private:
  int num_threads_;
};

}  // namespace assay
