// What a device operation can answer. Kernels never throw and never log; whoever calls them turns a code into a status.
#pragma once

#include <cstdint>

namespace assay {

// clang-format off: it takes the attribute for something else
enum class [[nodiscard]] KernelError : uint8_t {
  kOk,
  kOutOfMemory,
  kUnsupported,  // this combination of dtypes or shapes has no kernel on the device
  kDeviceLost,
};
// clang-format on

constexpr const char* kernel_error_name(KernelError error) {
  switch (error) {
    case KernelError::kOk:
      return "ok";
    case KernelError::kOutOfMemory:
      return "out of device memory";
    case KernelError::kUnsupported:
      return "not supported by this device";
    case KernelError::kDeviceLost:
      return "the device failed";
  }
  return "unknown";
}

}  // namespace assay
