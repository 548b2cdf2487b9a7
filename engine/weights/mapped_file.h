// A file mapped read only. Owns the mapping. Threads: reads from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace assay {

class MappedFile {
 public:
  // NotFound, or FailedPrecondition for what cannot be mapped (a folder, an empty file). Messages name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  size_t size_;
};

// The whole of a small text file; over `max_bytes` is an error.
absl::StatusOr<std::string> read_text_file(const std::string& path, size_t max_bytes);

}  // namespace assay
