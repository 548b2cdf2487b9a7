// The device a model runs on and its operations, by name; and the weights where its kernels read them.
//
// Threads: used by one thread at a time. Errors: Internal or ResourceExhausted from the device, with numbers and what
// to lower.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/execute/resolve_config.h"
#include "engine/model/decoder_weights.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace assay {

struct Backend {
  std::unique_ptr<Device> device;  // outlives ops
  std::unique_ptr<Ops> ops;
};

// What this process may use now: processors, memory, a GPU.
Machine this_machine();

// `config.device` is cpu or cuda (resolved). `stored`: dtype of the weights, which decides that of GPU activations.
absl::StatusOr<Backend> make_backend(const EngineConfig& config, DType stored);

// InternalError in the device's own words.
absl::Status device_failure(const Device& device, KernelError error);

// Copies every tensor of `weights` into one block of device memory and points it there. Parts of one projection lie
// side by side. Matrices whose dtype is not `activations` are rounded to it; vectors keep theirs. Host memory of the
// source is not needed afterwards.
absl::StatusOr<Buffer> upload_weights(DecoderWeights& weights, DType activations, Device& device);

// What is left for the cache on a GPU once the activations of such steps are allocated.
int64_t bytes_for_cache(const ModelConfig& model, const EngineConfig& config, int32_t logit_rows);

}  // namespace assay
