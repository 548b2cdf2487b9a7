// Reads the fields of a JSON object with their types; remembers the first field that is wrong. null counts as absent, unknown
// fields are not looked at. Whole floats pass as integers (16.0); strings never pass as numbers.
//
// Threads: one owner; refers to the object.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace assay {

struct NumberRange {
  double minimum = std::numeric_limits<double>::lowest();
  double maximum = std::numeric_limits<double>::max();
  bool minimum_excluded = false;
};

class Fields {
 public:
  using Json = nlohmann::ordered_json;

  // `prefix` comes before field names in messages, e.g. "stream_options.".
  explicit Fields(const Json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  // Null when absent or null.
  const Json* find(std::string_view name) const;

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t minimum, int64_t maximum);
  std::optional<double> number(std::string_view name, NumberRange range);
  std::optional<std::string> string(std::string_view name);
  std::optional<uint64_t> seed(std::string_view name);  // -2^63 to 2^64 - 1, taken modulo 2^64
  std::vector<int32_t> token_ids(std::string_view name);
  std::vector<std::string> strings(std::string_view name);  // a string or an array of strings
  const Json* object(std::string_view name);
  const Json* array(std::string_view name);

  // Records the first error.
  void fail(std::string_view name, const std::string& message);
  void fail_type(std::string_view name, const std::string& wanted, const Json& got);
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

  const Json& object_;
  std::string prefix_;
  absl::Status status_;
};

// The value as a token id that may be in a vocabulary. InvalidArgument begins with the name and holds the number as it was sent.
absl::StatusOr<int32_t> token_id(const nlohmann::ordered_json& value, std::string_view name);

// The value as an integer when it is one (whole floats included).
std::optional<int64_t> whole_number(const nlohmann::ordered_json& value);

}  // namespace assay
