#include "engine/weights/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "engine/weights/strict_json.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

using nlohmann::json;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 100'000'000;

std::optional<DType> compute_dtype(const std::string& stored) {
  if (stored == "F32") return DType::kF32;
  if (stored == "F16") return DType::kF16;
  if (stored == "BF16") return DType::kBF16;
  return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Tensor name -> file of the folder.
absl::StatusOr<std::map<std::string, std::string>> read_index(const std::string& path) {
  absl::StatusOr<std::string> text = read_text_file(path, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  const absl::StatusOr<json> index = parse_json_object(*text, path);
  if (!index.ok()) return index.status();
  const auto weight_map = index->find("weight_map");
  if (weight_map == index->end() || !weight_map->is_object()) {
    return absl::InvalidArgumentError(path + ": weight_map is not an object");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : weight_map->items()) {
    if (!file.is_string()) return absl::InvalidArgumentError(path + ": weight_map[\"" + name + "\"] is not a string");
    const std::string file_name = file.get<std::string>();
    if (file_name.empty() || file_name.find('/') != std::string::npos || file_name.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(path + ": weight_map[\"" + name + "\"] is not a file name in the folder");
    }
    files.emplace(name, file_name);
  }
  return files;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto checkpoint = std::unique_ptr<Checkpoint>(new Checkpoint());
  if (fs::exists(fs::path(folder) / kSingleFile, ignored)) {
    if (absl::Status status = checkpoint->add_shard(folder, kSingleFile, {}); !status.ok()) return status;
    return checkpoint;
  }
  const std::string index_path = (fs::path(folder) / kIndexFile).string();
  if (!fs::exists(index_path, ignored)) {
    return absl::NotFoundError(folder + ": neither " + kSingleFile + " nor " + kIndexFile +
                               " is there (only safetensors weights can be loaded)");
  }
  const auto weight_map = read_index(index_path);
  if (!weight_map.ok()) return weight_map.status();
  std::set<std::string> files;
  for (const auto& [name, file] : *weight_map) files.insert(file);
  for (const std::string& file : files) {
    if (absl::Status status = checkpoint->add_shard(folder, file, *weight_map); !status.ok()) return status;
  }
  for (const auto& [name, file] : *weight_map) {
    if (!checkpoint->contains(name)) {
      return absl::InvalidArgumentError(index_path + ": tensor \"" + name + "\" is not in its file " + file);
    }
  }
  return checkpoint;
}

absl::Status Checkpoint::add_shard(const std::string& folder, const std::string& file,
                                   const std::map<std::string, std::string>& weight_map) {
  const std::string path = (std::filesystem::path(folder) / file).string();
  auto mapped = MappedFile::open(path);
  if (!mapped.ok()) return mapped.status();
  auto entries = parse_safetensors({(*mapped)->data(), (*mapped)->size()}, path);
  if (!entries.ok()) return entries.status();
  for (TensorEntry& entry : *entries) {
    const auto listed = weight_map.find(entry.name);
    if (listed != weight_map.end() && listed->second != file) {
      spdlog::warn("{}: tensor \"{}\" is ignored: the index takes it from {}", path, entry.name, listed->second);
      continue;
    }
    if (listed == weight_map.end() && !weight_map.empty()) {
      spdlog::warn("{}: tensor \"{}\" is not in the index", path, entry.name);
    }
    const std::string name = entry.name;
    if (!tensors_.emplace(name, Location{shards_.size(), std::move(entry), false}).second) {
      return absl::InvalidArgumentError(path + ": tensor \"" + name + "\" is in another file as well");
    }
  }
  shards_.push_back(*std::move(mapped));
  return absl::OkStatus();
}

absl::StatusOr<ConstTensor> Checkpoint::get(const std::string& name, int64_t rows, int64_t cols) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::InvalidArgumentError("the weights have no tensor \"" + name + "\"");
  found->second.used = true;
  const TensorEntry& entry = found->second.entry;
  const std::optional<DType> dtype = compute_dtype(entry.dtype);
  if (!dtype) {
    return absl::InvalidArgumentError("tensor \"" + name + "\" has dtype " + entry.dtype +
                                      "; only F32, F16 and BF16 can be used");
  }
  const bool fits = entry.shape == std::vector<int64_t>{rows, cols} || (rows == 1 && entry.shape == std::vector{cols});
  if (!fits) {
    return absl::InvalidArgumentError("tensor \"" + name + "\" has shape " + shape_text(entry.shape) +
                                      ", but config.json asks for " +
                                      shape_text(rows == 1 ? std::vector{cols} : std::vector{rows, cols}));
  }
  return ConstTensor(aligned_data(found->second, dtype_bytes(*dtype)), *dtype, rows, cols, cols);
}

std::vector<std::string> Checkpoint::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, location] : tensors_) {
    if (!location.used) names.push_back(name);
  }
  return names;
}

const std::byte* Checkpoint::aligned_data(const Location& location, size_t alignment) {
  const std::byte* data = shards_[location.shard]->data() + location.entry.offset;
  if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return data;
  copies_.push_back(std::make_unique<std::byte[]>(location.entry.bytes));
  std::memcpy(copies_.back().get(), data, location.entry.bytes);
  return copies_.back().get();
}

}  // namespace assay
