#include "engine/weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/weights/strict_json.h"
#include "nlohmann/json.hpp"

namespace assay {
namespace {

using nlohmann::json;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxRank = 16;

std::optional<size_t> element_bytes(const std::string& dtype) {
  static constexpr std::pair<const char*, size_t> kKnown[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},     {"I32", 4},     {"I16", 2}, {"I8", 1},
      {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};
  for (const auto& [name, bytes] : kKnown) {
    if (dtype == name) return bytes;
  }
  return std::nullopt;
}

std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// A short quotation of a name that may be anything.
std::string name_in_quotes(const std::string& name) {
  return "\"" + name.substr(0, 200) + "\"";
}

class HeaderReader {
 public:
  HeaderReader(std::string what, uint64_t data_bytes, size_t data_offset)
      : what_(std::move(what)), data_bytes_(data_bytes), data_offset_(data_offset) {}

  absl::StatusOr<TensorEntry> read(const std::string& name, const json& fields) const {
    if (!fields.is_object()) return error(name, "is not an object");
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!fields.contains(key)) return error(name, std::string("has no ") + key);
    }
    TensorEntry entry;
    entry.name = name;
    if (!fields["dtype"].is_string()) return error(name, "dtype is not a string");
    entry.dtype = fields["dtype"].get<std::string>();
    const auto element = element_bytes(entry.dtype);
    if (!element) return error(name, "has the unknown dtype " + name_in_quotes(entry.dtype));
    if (absl::Status status = read_offsets(fields["data_offsets"], entry); !status.ok()) return status;
    if (absl::Status status = read_shape(fields["shape"], *element, entry); !status.ok()) return status;
    return entry;
  }

 private:
  absl::Status error(const std::string& name, const std::string& problem) const {
    return absl::InvalidArgumentError(what_ + ": tensor " + name_in_quotes(name) + " " + problem);
  }

  absl::Status read_offsets(const json& offsets, TensorEntry& entry) const {
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      return error(entry.name, "data_offsets are not two non-negative integers");
    }
    const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    if (end < begin) return error(entry.name, "ends before it begins");
    if (end > data_bytes_) {
      return error(entry.name, "ends at byte " + std::to_string(end) + " of the data, but the file holds only " +
                                   std::to_string(data_bytes_) + " (truncated?)");
    }
    entry.offset = data_offset_ + static_cast<size_t>(begin);
    entry.bytes = static_cast<size_t>(end - begin);
    return absl::OkStatus();
  }

  absl::Status read_shape(const json& shape, size_t element, TensorEntry& entry) const {
    if (!shape.is_array() || shape.size() > kMaxRank) return error(entry.name, "shape is not a list of a few sizes");
    std::optional<uint64_t> bytes = element;
    for (const json& size : shape) {
      if (!size.is_number_unsigned()) return error(entry.name, "shape has an entry that is not a non-negative integer");
      const uint64_t value = size.get<uint64_t>();
      if (value > INT64_MAX) return error(entry.name, "shape is too large");
      bytes = checked_product(*bytes, value);
      if (!bytes) return error(entry.name, "shape is too large");
      entry.shape.push_back(static_cast<int64_t>(value));
    }
    if (*bytes != entry.bytes) {
      return error(entry.name, "has a shape of " + std::to_string(*bytes) + " bytes but " +
                                   std::to_string(entry.bytes) + " bytes of data");
    }
    return absl::OkStatus();
  }

  std::string what_;
  uint64_t data_bytes_;
  size_t data_offset_;
};

// The data must be used exactly once: no overlaps, gaps, or rest.
absl::Status check_coverage(std::vector<TensorEntry>& entries, size_t data_offset, size_t file_bytes,
                            const std::string& what) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  size_t end = data_offset;
  for (const TensorEntry& entry : entries) {
    if (entry.offset < end) {
      return absl::InvalidArgumentError(what + ": tensor " + name_in_quotes(entry.name) + " overlaps another one");
    }
    if (entry.offset > end) {
      return absl::InvalidArgumentError(what + ": there is a gap in the data before tensor " +
                                        name_in_quotes(entry.name));
    }
    end = entry.offset + entry.bytes;
  }
  if (end != file_bytes) {
    return absl::InvalidArgumentError(what + ": " + std::to_string(file_bytes - end) + " bytes belong to no tensor");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file, const std::string& what) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes))
    return absl::InvalidArgumentError(what + ": too short to be a safetensors file");
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));  // little endian, as are the machines this runs on
  if (header_bytes < 2 || header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(what + ": the header length " + std::to_string(header_bytes) + " is impossible");
  }
  if (header_bytes > file.size() - sizeof(header_bytes)) {
    return absl::InvalidArgumentError(what + ": the file is shorter than its header (truncated?)");
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + sizeof(header_bytes);
  const size_t data_offset = sizeof(header_bytes) + static_cast<size_t>(header_bytes);
  const absl::StatusOr<json> header = parse_json_object({text, static_cast<size_t>(header_bytes)}, what + ": header");
  if (!header.ok()) return header.status();

  const HeaderReader reader(what, file.size() - data_offset, data_offset);
  std::vector<TensorEntry> entries;
  for (const auto& [name, fields] : header->items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<TensorEntry> entry = reader.read(name, fields);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  if (absl::Status status = check_coverage(entries, data_offset, file.size(), what); !status.ok()) return status;
  return entries;
}

}  // namespace assay
