// Builds safetensors files, right or wrong, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "gtest/gtest.h"
#include "unistd.h"

namespace assay {

inline std::string safetensors_file(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return {reinterpret_cast<const std::byte*>(file.data()), file.size()};
}

// A folder that is removed at the end.
class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::path(testing::TempDir()) /
            ("assay_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace assay
