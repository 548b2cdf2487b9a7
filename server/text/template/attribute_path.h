// "a.b.0" of filters such as map(attribute=...) and sort(attribute=...).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "server/text/template/access.h"
#include "server/text/template/text.h"

namespace assay::jinja {

inline const Value* named_argument(const Arguments& arguments, std::string_view name) {
  const auto at = std::find_if(arguments.named.begin(), arguments.named.end(),
                               [&](const auto& pair) { return pair.first == name; });
  return at == arguments.named.end() ? nullptr : &at->second;
}

inline const std::string& text_of(const Value& value, const char* what) {
  const Text* text = value.as_text();
  if (!text) fail(std::string(what) + " must be a string, not '" + type_name(value) + "'");
  return text->bytes;
}

class AttributePath {
 public:
  // None: the item itself. A string: names and indices between dots. `fallback` (may be null or None) replaces
  // undefined values.
  explicit AttributePath(const Value& path, const Value* fallback = nullptr)
      : fallback_(fallback && !fallback->is_none() ? fallback : nullptr) {
    if (path.is_none()) return;
    const Text* text = path.as_text();
    if (!text) {
      parts_.push_back(path);
      return;
    }
    for (size_t begin = 0; begin <= text->bytes.size();) {
      const size_t end = std::min(text->bytes.find('.', begin), text->bytes.size());
      parts_.push_back(part(text->bytes.substr(begin, end - begin)));
      begin = end + 1;
    }
  }

  Value get(Runtime& runtime, Value item) const {
    for (const Value& part : parts_) {
      runtime.budget.step();
      item = get_item(runtime, item, part);
      if (fallback_ && item.as_undefined()) item = *fallback_;
    }
    return item;
  }

  // For comparing without regard to case: strings in lower case.
  Value get_key(Runtime& runtime, const Value& item, bool case_sensitive) const {
    const Value found = get(runtime, item);
    if (case_sensitive || !found.as_text()) return found;
    runtime.budget.create(static_cast<int64_t>(found.as_text()->bytes.size()));
    return Value::string(to_lower(found.as_text()->bytes));
  }

 private:
  static Value part(const std::string& text) {
    const bool digits = !text.empty() && text.size() < 10 &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    return digits ? Value::integer(std::stol(text)) : Value::string(text);
  }

  std::vector<Value> parts_;
  const Value* fallback_;
};

}  // namespace assay::jinja
