#include "engine/execute/backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/execute/machine.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_device.h"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

constexpr size_t kAlignment = 256;
constexpr int64_t kKernelScratchBytes = int64_t{3} << 29;  // products, attention's partial results, captured steps

// Every tensor of a model, matrices of one projection next to each other and likewise their biases.
std::vector<ConstTensor*> tensors_of(DecoderWeights& weights) {
  std::vector<ConstTensor*> all = {&weights.embedding, &weights.final_norm};
  const auto add_parts = [&](auto& parts) {
    for (LinearPart& part : parts) all.push_back(&part.weight);
    for (LinearPart& part : parts) all.push_back(&part.bias);
  };
  for (LayerWeights& layer : weights.layers) {
    for (ConstTensor* norm : {&layer.input_norm, &layer.post_attention_norm, &layer.q_norm, &layer.k_norm}) {
      all.push_back(norm);
    }
    add_parts(layer.qkv);
    add_parts(layer.gate_up);
    for (LinearPart* part : {&layer.output, &layer.down}) {
      all.push_back(&part->weight);
      all.push_back(&part->bias);
    }
  }
  if (weights.head.weight.data != weights.embedding.data) all.push_back(&weights.head.weight);
  all.push_back(&weights.head.bias);
  return all;
}

DType dtype_on_device(const ConstTensor& tensor, DType activations) {
  return tensor.rows == 1 ? tensor.dtype : activations;
}

// Rows side by side, in the wanted dtype.
std::vector<std::byte> packed(const ConstTensor& tensor, DType dtype) {
  const size_t row_bytes = static_cast<size_t>(tensor.cols) * dtype_bytes(dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.rows) * row_bytes);
  for (int64_t row = 0; row < tensor.rows; ++row) {
    std::byte* to = bytes.data() + static_cast<size_t>(row) * row_bytes;
    if (tensor.dtype == dtype) {
      std::copy_n(tensor.row(row), row_bytes, to);
      continue;
    }
    uint16_t* halves = reinterpret_cast<uint16_t*>(to);
    for (int64_t c = 0; c < tensor.cols; ++c) {
      const float value = load_as_f32(tensor.dtype, tensor.row(row), c);
      halves[c] = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(std::clamp(value, -kMaxF16, kMaxF16));
    }
  }
  return bytes;
}

KernelError copy_tensor(const ConstTensor& tensor, DType dtype, std::byte* to, Device& device) {
  if (tensor.dtype == dtype && tensor.row_stride == tensor.cols) {
    return device.copy_to_device(to, tensor.data, static_cast<size_t>(tensor.rows * tensor.cols) * dtype_bytes(dtype));
  }
  const std::vector<std::byte> bytes = packed(tensor, dtype);
  return device.copy_to_device(to, bytes.data(), bytes.size());
}

std::string gib(int64_t bytes) {
  return std::to_string(bytes >> 30) + "." + std::to_string((bytes >> 20) % 1024 * 10 / 1024) + " GiB";
}

}  // namespace

Machine this_machine() {
  Machine machine{usable_cpus(), available_memory_bytes()};
  cuda_available(&machine.why_no_cuda);
  return machine;
}

absl::StatusOr<Backend> make_backend(const EngineConfig& config, DType stored) {
  Backend backend;
  if (config.device == "cpu") {
    backend.device = std::make_unique<CpuDevice>(config.threads);
    backend.ops = std::make_unique<CpuOps>(config.threads);
    return backend;
  }
  backend.device = make_cuda_device();
  if (!backend.device) return absl::InternalError("device cuda: the GPU does not start");
  if (stored == DType::kF32) spdlog::warn("the weights are float32; on the GPU they are rounded to bfloat16");
  backend.ops = make_cuda_ops(*backend.device, stored == DType::kF32 ? DType::kBF16 : stored);
  if (const std::string warning = backend.ops->warning(); !warning.empty()) spdlog::warn("{}", warning);
  return backend;
}

absl::Status device_failure(const Device& device, KernelError error) {
  const std::string text = device.error_text();
  return absl::InternalError(kernel_error_name(error) + (text.empty() ? "" : ": " + text));
}

absl::StatusOr<Buffer> upload_weights(DecoderWeights& weights, DType activations, Device& device) {
  const std::vector<ConstTensor*> tensors = tensors_of(weights);
  const bool tied = weights.head.weight.data == weights.embedding.data;
  size_t total = 0;
  std::vector<size_t> places;
  for (const ConstTensor* tensor : tensors) {
    places.push_back(total);
    const size_t bytes = static_cast<size_t>(tensor->rows * tensor->cols) *
                         dtype_bytes(dtype_on_device(*tensor, activations));
    // Weights and biases of a projection continue each other where their sizes allow it.
    if (*tensor) total += (bytes + 15) / 16 * 16;
  }
  Buffer memory = Buffer::make(device, total + kAlignment);
  if (memory.data() == nullptr) {
    return absl::ResourceExhaustedError("the weights take " + gib(static_cast<int64_t>(total)) + ", but the GPU has " +
                                        gib(cuda_free_bytes()) + " free; use a smaller model or free the GPU");
  }
  std::byte* base = static_cast<std::byte*>(memory.data());
  for (size_t i = 0; i < tensors.size(); ++i) {
    ConstTensor& tensor = *tensors[i];
    if (!tensor) continue;
    const DType dtype = dtype_on_device(tensor, activations);
    const KernelError copied = copy_tensor(tensor, dtype, base + places[i], device);
    if (copied != KernelError::kOk) return device_failure(device, copied);
    tensor = ConstTensor(base + places[i], dtype, tensor.rows, tensor.cols, tensor.cols);
  }
  if (tied) weights.head.weight = weights.embedding;
  const KernelError finished = device.synchronize();
  if (finished != KernelError::kOk) return device_failure(device, finished);
  return memory;
}

int64_t bytes_for_cache(const ModelConfig& model, const EngineConfig& config, int32_t logit_rows) {
  const int64_t heads = int64_t{2} * model.num_heads + 2 * model.num_kv_heads;
  const int64_t row = int64_t{3} * model.hidden_size + heads * model.head_dim + 3 * model.intermediate_size;
  const int64_t activations = row * 2 * config.max_num_batched_tokens;
  const int64_t logits = int64_t{3 * 4} * logit_rows * model.vocab_size;  // and the samplers' copies
  return std::max<int64_t>(0, cuda_free_bytes() - activations - logits - kKernelScratchBytes);
}

}  // namespace assay
