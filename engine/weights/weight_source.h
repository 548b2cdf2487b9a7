// Where a model gets its tensors from, by their published names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/core/tensor.h"

namespace assay {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool contains(const std::string& name) const = 0;

  // A host view that lives as long as the source. `rows` x `cols` is what the model needs (a vector has rows = 1).
  // InvalidArgument, naming the tensor: absent, another shape, a dtype that is not F32, F16 or BF16.
  virtual absl::StatusOr<ConstTensor> get(const std::string& name, int64_t rows, int64_t cols) = 0;

  // Tensors that are there and were never asked for, in order of their names.
  virtual std::vector<std::string> unused() const { return {}; }
};

}  // namespace assay
