// Typed access to bound arguments of builtins.
#pragma once

#include <string>

#include "server/text/template/operators.h"
#include "server/text/template/runtime.h"

namespace assay::jinja {

// An argument that must be a string; `otherwise` where absent.
inline const std::string& text_argument(const Arguments& arguments, size_t i, const char* what) {
  const Value& value = arguments.at(i);
  require_defined(value);
  const Text* text = value.as_text();
  if (!text) fail(std::string(what) + " must be str, not " + type_name(value));
  return text->bytes;
}

inline int64_t index_argument(const Arguments& arguments, size_t i, int64_t otherwise, const char* what) {
  return arguments.has(i) ? to_index(arguments.at(i), what) : otherwise;
}

inline bool bool_argument(const Arguments& arguments, size_t i, bool otherwise) {
  return arguments.has(i) ? truthy(arguments.at(i)) : otherwise;
}

// The argument, or None.
inline Value value_argument(const Arguments& arguments, size_t i) {
  return arguments.has(i) ? arguments.at(i) : Value();
}

}  // namespace assay::jinja
