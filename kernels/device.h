// One device: its memory and the order of its work. Twins: cpu/ (and later cuda/).
//
// Owns: the memory it hands out until `release`. A Device outlives every Buffer made from it.
// Order: a device runs its copies and the operations of its `Ops` one after another, as issued (one stream). On the CPU
// each is finished when the call returns; elsewhere `synchronize` waits for all of them. Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/core/error.h"

namespace assay {

enum class MemoryKind {
  kDevice,      // where kernels read and write fastest
  kPinnedHost,  // the host writes it, copies from it are asynchronous; on the CPU the same as kDevice
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;  // for people, e.g. "cpu (16 threads, AVX3)"

  // `bytes` zeroed bytes aligned to 64 or more; nullptr where there is no room. Memory is committed when first touched
  // where the system allows it.
  [[nodiscard]] virtual void* allocate(size_t bytes, MemoryKind kind) = 0;
  virtual void release(void* data, size_t bytes, MemoryKind kind) = 0;

  virtual KernelError copy_to_device(void* device, const void* host, size_t bytes) = 0;
  virtual KernelError copy_to_host(void* host, const void* device, size_t bytes) = 0;
  virtual KernelError synchronize() = 0;

  // The device's own words for its first failure; empty where there was none or there are none.
  virtual std::string error_text() const { return ""; }
};

}  // namespace assay
