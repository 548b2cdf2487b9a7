#include "server/text/json_node.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr size_t kLongestQuote = 80;

}  // namespace

std::string in_quotes(std::string_view text) {
  if (text.size() <= kLongestQuote) return fmt::format("\"{}\"", text);
  return fmt::format("\"{}...\"", text.substr(0, valid_utf8_prefix(text.substr(0, kLongestQuote))));
}

void JsonNode::fail(std::string_view what) const {
  throw LoadError(fmt::format("{}: {}", path_, what));
}

void JsonNode::require_object() const {
  if (!value_->is_object()) fail(fmt::format("must be an object, is {}", value_->type_name()));
}

JsonNode JsonNode::at(std::string_view key) const {
  require_object();
  const auto field = value_->find(std::string(key));
  if (field == value_->end()) fail(fmt::format("has no field \"{}\"", key));
  return {*field, fmt::format("{}.{}", path_, key)};
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  require_object();
  const auto field = value_->find(std::string(key));
  if (field == value_->end() || field->is_null()) return std::nullopt;
  return JsonNode(*field, fmt::format("{}.{}", path_, key));
}

size_t JsonNode::size() const {
  if (!value_->is_array()) fail(fmt::format("must be an array, is {}", value_->type_name()));
  return value_->size();
}

JsonNode JsonNode::item(size_t i) const {
  return {value_->at(i), fmt::format("{}[{}]", path_, i)};
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) fail(fmt::format("must be a string, is {}", value_->type_name()));
  return value_->get_ref<const std::string&>();
}

char32_t JsonNode::character() const {
  const std::string& text = string();
  size_t end = 0;
  const char32_t c = text.empty() ? 0 : utf8_next(text, end);
  if (text.empty() || end != text.size()) fail(fmt::format("must be one character, is {}", in_quotes(text)));
  return c;
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("must be true or false, is {}", value_->type_name()));
  return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  if (!value_->is_number_integer()) fail(fmt::format("must be an integer, is {}", value_->type_name()));
  const bool too_large = value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = too_large ? INT64_MAX : value_->get<int64_t>();
  if (too_large || number < low || number > high)
    fail(fmt::format("must be from {} to {}, is {}", low, high, value_->dump()));
  return number;
}

bool JsonNode::flag(std::string_view key, bool otherwise) const {
  const auto field = find(key);
  return field ? field->boolean() : otherwise;
}

}  // namespace assay
