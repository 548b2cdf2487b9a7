// Random weights for a model without a checkpoint (`--load-format dummy`): every tensor that is asked for exists.
// Values depend on the seed and the tensor's name alone: uniform with standard deviation 0.02, norm weights 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/weights/weight_source.h"

namespace assay {

class DummyWeights final : public WeightSource {
 public:
  DummyWeights(DType dtype, uint64_t seed) : dtype_(dtype), seed_(seed) {}

  bool contains(const std::string&) const override { return true; }
  absl::StatusOr<ConstTensor> get(const std::string& name, int64_t rows, int64_t cols) override;

 private:
  DType dtype_;
  uint64_t seed_;
  std::vector<std::unique_ptr<std::byte[]>> tensors_;
};

}  // namespace assay
