// Tables of filters by subject.
#pragma once

#include <span>
#include <string>

#include "server/text/template/runtime.h"

namespace assay::jinja {

std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();    // selection, joining, cutting
std::span<const Builtin> order_filters();       // sort, min, max, unique, groupby
std::span<const Builtin> conversion_filters();  // numbers, default, tojson

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool pretty = false;  // a line per item, with `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Python's json.dumps. Throws for values that JSON does not have.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace assay::jinja
