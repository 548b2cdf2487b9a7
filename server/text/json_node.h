// A JSON value together with the path that leads to it, so that every complaint about a file names its field.
//
// Errors: inside the loader they travel as LoadError, an exception that Tokenizer::load turns into InvalidArgument; it
// never leaves this folder. Threads: a view; the document must outlive it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace assay {

struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A quoted, shortened form of text from a file, for messages.
std::string in_quotes(std::string_view text);

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(std::string_view what) const;

  // Fields of an object. `at` fails when the field is missing; `find` gives nothing when it is missing or null.
  JsonNode at(std::string_view key) const;
  std::optional<JsonNode> find(std::string_view key) const;

  // Items of an array.
  size_t size() const;
  JsonNode item(size_t i) const;

  const std::string& string() const;
  char32_t character() const;  // a string of exactly one character
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;

  std::string type() const { return at("type").string(); }
  bool flag(std::string_view key, bool otherwise) const;
  void require_object() const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace assay
