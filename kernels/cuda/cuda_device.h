// The door to the CUDA back end, for builds with and without it: no CUDA header is needed to include this.
//
// Device: one GPU (the first that CUDA_VISIBLE_DEVICES allows), one stream. copy_to_device from pageable memory returns
// when the source may change; from pinned memory it is asynchronous. copy_to_host waits. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/core/dtype.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace assay {

// Whether this build, this machine and its GPU can run the CUDA kernels; if not, why, as a sentence for people.
bool cuda_available(std::string* why_not);

// nullptr where cuda_available() is false or the device cannot be set up.
std::unique_ptr<Device> make_cuda_device();

// The operations of a device of make_cuda_device, which must outlive them. `activations`: kBF16 or kF16.
std::unique_ptr<Ops> make_cuda_ops(Device& device, DType activations);

// Device memory that is free now; 0 without a device.
int64_t cuda_free_bytes();

}  // namespace assay
