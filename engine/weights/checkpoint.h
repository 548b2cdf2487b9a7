// A folder of safetensors files: one `model.safetensors`, or shards with `model.safetensors.index.json`.
//
// Owns the mappings; tensors are used in place (copied only where the file leaves them unaligned).
// Threads: load on one thread, read from any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/weights/mapped_file.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/weight_source.h"

namespace assay {

class Checkpoint final : public WeightSource {
 public:
  // InvalidArgument or NotFound, naming the file: missing shards, broken shards, tensors of the index that are not
  // there. Tensors that the index does not mention are used, with a warning.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> open(const std::string& folder);

  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  absl::StatusOr<ConstTensor> get(const std::string& name, int64_t rows, int64_t cols) override;
  std::vector<std::string> unused() const override;

 private:
  struct Location {
    size_t shard;
    TensorEntry entry;
    bool used = false;
  };

  absl::Status add_shard(const std::string& folder, const std::string& file,
                         const std::map<std::string, std::string>& weight_map);
  const std::byte* aligned_data(const Location& location, size_t alignment);

  std::vector<std::unique_ptr<MappedFile>> shards_;
  std::map<std::string, Location> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace assay
