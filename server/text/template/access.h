// Attributes, items, slices, iteration: how templates reach into values, within the immutable sandbox.
//
// Errors: a missing attribute or item is an undefined value; using one throws.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/text/template/runtime.h"

namespace assay::jinja {

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name);  // object.name
Value get_item(Runtime& runtime, const Value& object, const Value& key);              // object[key]
// object[start:stop:step]; bounds may be None.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);

// Items of anything that can be looped over; takes the rest of a generator.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// len(value); nothing when it has none.
std::optional<int64_t> length(Runtime& runtime, const Value& value);

// Keys, values or (key, value) tuples of a dict.
Value dict_view(Runtime& runtime, const Dict& dict, SequenceKind kind);

}  // namespace assay::jinja
