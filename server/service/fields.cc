#include "server/service/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "server/service/status.h"

namespace assay {

using Json = nlohmann::ordered_json;

std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > 9007199254740992.0 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

absl::StatusOr<int32_t> token_id(const Json& value, std::string_view name) {
  if (!value.is_number()) return absl::InvalidArgumentError(fmt::format("{} must hold token ids, got {}", name, value.type_name()));
  const std::optional<int64_t> id = whole_number(value);
  if (id && *id >= 0 && *id <= INT32_MAX) return static_cast<int32_t>(*id);
  const double number = value.get<double>();
  if (number == std::floor(number)) {
    return absl::InvalidArgumentError(fmt::format("{}: token id {} is out of vocabulary", name, value.dump()));
  }
  return absl::InvalidArgumentError(fmt::format("{}: token ids are whole numbers, got {}", name, value.dump()));
}

const Json* Fields::find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::fail(std::string_view name, const std::string& message) {
  if (status_.ok()) status_ = field_error(full(name), message);
}

void Fields::fail_type(std::string_view name, const std::string& wanted, const Json& got) {
  fail(name, fmt::format("{} must be {}, got {}", full(name), wanted, got.type_name()));
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail_type(name, "true or false", *value);
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t minimum, int64_t maximum) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail_type(name, "an integer", *value);
    return std::nullopt;
  }
  const std::optional<int64_t> number = whole_number(*value);
  if (number && *number >= minimum && *number <= maximum) return number;
  fail(name, fmt::format("{} must be an integer from {} to {}, got {}", full(name), minimum, maximum, value->dump()));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, NumberRange range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail_type(name, "a number", *value);
    return std::nullopt;
  }
  const double number = value->get<double>();
  const bool above = range.minimum_excluded ? number > range.minimum : number >= range.minimum;
  if (std::isfinite(number) && above && number <= range.maximum) return number;
  fail(name, fmt::format("{} must be {} {} and at most {}, got {}", full(name),
                         range.minimum_excluded ? "above" : "at least", range.minimum, range.maximum, value->dump()));
  return std::nullopt;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail_type(name, "a string", *value);
  return std::nullopt;
}

std::optional<uint64_t> Fields::seed(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  const std::optional<int64_t> number = whole_number(*value);
  if (number) return static_cast<uint64_t>(*number);
  if (value->is_number()) {
    fail(name, fmt::format("{} must be an integer below 2^64, got {}", full(name), value->dump()));
  } else {
    fail_type(name, "an integer", *value);
  }
  return std::nullopt;
}

std::vector<int32_t> Fields::token_ids(std::string_view name) {
  std::vector<int32_t> ids;
  const Json* list = array(name);
  if (list == nullptr) return ids;
  for (const Json& item : *list) {
    const absl::StatusOr<int32_t> id = token_id(item, full(name));
    if (!id.ok()) {
      fail(name, std::string(id.status().message()));
      return ids;
    }
    ids.push_back(*id);
  }
  return ids;
}

std::vector<std::string> Fields::strings(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    fail_type(name, "a string or an array of strings", *value);
    return {};
  }
  std::vector<std::string> list;
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail(name, fmt::format("{} must hold strings, got {}", full(name), item.type_name()));
      return {};
    }
    list.push_back(item.get<std::string>());
  }
  return list;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  fail_type(name, "an object", *value);
  return nullptr;
}

const Json* Fields::array(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  fail_type(name, "an array", *value);
  return nullptr;
}

}  // namespace assay
