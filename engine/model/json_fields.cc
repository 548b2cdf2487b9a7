#include "engine/model/json_fields.h"

#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"

namespace assay {
namespace {

using nlohmann::json;

std::optional<int64_t> as_integer(const json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();  // some exporters write 8192.0
  if (number != std::floor(number) || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

JsonFields::JsonFields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

const json* JsonFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::has(const char* name) const {
  return find(name) != nullptr;
}

void JsonFields::fail(const std::string& name, const std::string& problem) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(where_ + ": " + name + " " + problem);
}

int64_t JsonFields::integer(const char* name, std::optional<int64_t> otherwise, int64_t min, int64_t max) {
  const json* value = find(name);
  if (value == nullptr) {
    if (!otherwise) fail(name, "is missing");
    return otherwise.value_or(min);
  }
  const std::optional<int64_t> number = as_integer(*value);
  if (number && *number >= min && *number <= max) return *number;
  fail(name, "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
  return min;
}

double JsonFields::number(const char* name, std::optional<double> otherwise, double min, double max) {
  const json* value = find(name);
  if (value == nullptr) {
    if (!otherwise) fail(name, "is missing");
    return otherwise.value_or(min);
  }
  if (value->is_number() && value->get<double>() >= min && value->get<double>() <= max) return value->get<double>();
  fail(name, "must be a number from " + json(min).dump() + " to " + json(max).dump());
  return min;
}

bool JsonFields::boolean(const char* name, bool otherwise) {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false");
  return otherwise;
}

std::string JsonFields::text(const char* name, const std::string& otherwise) {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string");
  return otherwise;
}

std::vector<std::string> JsonFields::texts(const char* name) {
  std::vector<std::string> result;
  const json* value = find(name);
  if (value == nullptr) return result;
  if (!value->is_array()) fail(name, "must be a list of strings");
  for (const json& item : *value) {
    if (!item.is_string()) {
      fail(name, "must be a list of strings");
      return result;
    }
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<int32_t> JsonFields::token_ids(const char* name) {
  std::vector<int32_t> result;
  const json* value = find(name);
  if (value == nullptr) return result;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& item : list) {
    const std::optional<int64_t> id = as_integer(item);
    if (!id || *id < 0 || *id > INT32_MAX) {
      fail(name, "must be a token id or a list of token ids");
      return result;
    }
    result.push_back(static_cast<int32_t>(*id));
  }
  return result;
}

const json* JsonFields::object(const char* name) {
  const json* value = find(name);
  if (value != nullptr && !value->is_object()) fail(name, "must be an object");
  return value != nullptr && value->is_object() ? value : nullptr;
}

}  // namespace assay
