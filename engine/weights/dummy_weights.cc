#include "engine/weights/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace assay {
namespace {

uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t name_hash(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

void store(DType dtype, float value, std::byte* data, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(data)[index] = value;
      break;
    case DType::kBF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_bf16(value);
      break;
    case DType::kF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_f16(value);
      break;
  }
}

}  // namespace

absl::StatusOr<ConstTensor> DummyWeights::get(const std::string& name, int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  tensors_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count) * dtype_bytes(dtype_)));
  std::byte* data = tensors_.back().get();
  const bool is_norm = name.find("norm.weight") != std::string::npos;
  const float half_width = 0.02f * std::sqrt(3.0f);
  const uint64_t stream = splitmix(seed_ ^ name_hash(name));
  const auto fill = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = splitmix(stream + static_cast<uint64_t>(i));
      const float uniform = static_cast<float>(static_cast<int64_t>(bits >> 40)) * 0x1p-23f - 1.0f;
      store(dtype_, is_norm ? 1.0f : uniform * half_width, data, i);
    }
  };
  // Billions of weights take minutes on one processor.
  constexpr int64_t kPart = int64_t{1} << 22;
  const int64_t parts = std::clamp<int64_t>(count / kPart, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (int64_t p = 1; p < parts; ++p) helpers.emplace_back(fill, count * p / parts, count * (p + 1) / parts);
  fill(0, count / parts);
  helpers.clear();
  return ConstTensor(data, dtype_, rows, cols, cols);
}

}  // namespace assay
