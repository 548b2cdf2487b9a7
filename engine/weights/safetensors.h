// The safetensors container: 8 bytes header length, a JSON header, tensor data without gaps.
//
// Everything is checked before anything is used: the header may be hostile and the file cut off.
// Threads: pure functions. Errors: InvalidArgument that names the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace assay {

struct TensorEntry {
  std::string name;
  std::string dtype;  // as stored, e.g. "BF16"; always a known one
  std::vector<int64_t> shape;
  size_t offset = 0;  // of the first byte, from the start of the file
  size_t bytes = 0;
};

// Every tensor of the file, in the order of its data. `file` is the whole file, `what` its name for messages.
absl::StatusOr<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file, const std::string& what);

}  // namespace assay
