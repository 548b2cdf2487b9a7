#include "server/text/template/access.h"

#include <algorithm>

#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

// Attributes that every Python object has; the sandbox refuses them all.
bool is_special_attribute(const std::string& name) {
  static const char* const kNames[] = {
      "__class__",        "__doc__",      "__init__",    "__dir__",          "__eq__",
      "__format__",       "__hash__",     "__new__",     "__reduce__",       "__repr__",
      "__str__",          "__sizeof__",   "__len__",     "__iter__",         "__add__",
      "__getitem__",      "__contains__", "__mul__",     "__subclasshook__", "__init_subclass__",
      "__getattribute__", "__setattr__",  "__delattr__", "__ne__",           "__lt__",
      "__le__",           "__gt__",       "__ge__",      "__reduce_ex__"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* known) { return name == known; });
}

bool changes_value(const Value& object, const std::string& name) {
  static const char* const kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static const char* const kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto is_name = [&](const char* known) { return name == known; };
  const Sequence* sequence = object.as_sequence();
  if (sequence && sequence->kind == SequenceKind::kList)
    return std::any_of(std::begin(kList), std::end(kList), is_name);
  return object.as_dict() && std::any_of(std::begin(kDict), std::end(kDict), is_name);
}

std::string object_label(const Value& object) {
  if (object.is_none()) return "None";
  const std::string name = type_name(object);
  if (name == "LoopContext" || name == "Macro") return "jinja2.runtime." + name + " object";
  if (name == "Namespace" || name == "Cycler" || name == "Joiner") return "jinja2.utils." + name + " object";
  return name + " object";
}

Value missing_attribute(const Value& object, const std::string& name) {
  return Value::undefined(quote(object_label(object)) + " has no attribute " + quote(name));
}

// Python's getattr, as the sandbox shows it.
std::optional<Value> python_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  if (is_special_attribute(name) || changes_value(object, name)) {
    return Value::undefined("access to attribute " + quote(name) + " of " + quote(type_name(object)) +
                          " object is unsafe.");
  }
  if (Object* with_attributes = object.as_object()) {
    if (auto value = with_attributes->attribute(runtime, name)) return value;
  }
  const Sequence* sequence = object.as_sequence();
  if (sequence && sequence->is_group && (name == "grouper" || name == "list")) {
    return sequence->items[name == "grouper" ? 0 : 1];
  }
  if (const Builtin* method = find_method(object, name)) return bound_method(object, *method);
  return std::nullopt;
}

Value character_value(const Text& text, int64_t index) {
  if (text.ascii) return Value::string(std::string(1, text.bytes[static_cast<size_t>(index)]));
  const auto offsets = character_offsets(text.bytes);
  const size_t i = static_cast<size_t>(index);
  return Value::string(text.bytes.substr(offsets[i], offsets[i + 1] - offsets[i]));
}

// object[integer]; nothing when out of range or when the object takes no integers.
std::optional<Value> indexed(Runtime& runtime, const Value& object, Int index) {
  if (!object.as_sequence() && !object.as_text()) return std::nullopt;
  if (object.as_sequence() && object.as_sequence()->kind > SequenceKind::kRange) return std::nullopt;  // dict views
  const int64_t size = *length(runtime, object);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (const Sequence* sequence = object.as_sequence()) return sequence->items[static_cast<size_t>(index)];
  return character_value(*object.as_text(), static_cast<int64_t>(index));
}

std::optional<Value> subscripted(Runtime& runtime, const Value& object, const Value& key) {
  if (const Dict* dict = object.as_dict()) {
    if (!is_hashable(key)) return std::nullopt;
    const Value* found = dict->find(runtime.budget, key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  const auto index = key.integral();
  return index ? indexed(runtime, object, *index) : std::nullopt;
}

struct SliceBounds {
  int64_t start, stop, step;
};

int64_t clamp_index(const Value& bound, int64_t otherwise, int64_t size, int64_t low, int64_t high) {
  if (bound.is_none()) return otherwise;
  const auto given = bound.integral();
  if (!given) {
    require_defined(bound);
    fail("slice indices must be integers or None or have an __index__ method");
  }
  const Int index = *given < 0 ? *given + size : *given;
  return static_cast<int64_t>(std::clamp<Int>(index, low, high));
}

SliceBounds slice_bounds(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const int64_t by = clamp_index(step, 1, 0, -INT32_MAX, INT32_MAX);
  if (by == 0) fail("slice step cannot be zero");
  if (by > 0) return {clamp_index(start, 0, size, 0, size), clamp_index(stop, size, size, 0, size), by};
  return {clamp_index(start, size - 1, size, -1, size - 1), clamp_index(stop, -1, size, -1, size - 1), by};
}

std::vector<int64_t> slice_indices(const SliceBounds& bounds) {
  std::vector<int64_t> indices;
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop; i += bounds.step)
    indices.push_back(i);
  return indices;
}

Value slice_text(Runtime& runtime, const Text& text, const Value& start, const Value& stop, const Value& step) {
  const auto offsets = character_offsets(text.bytes);
  const auto bounds = slice_bounds(static_cast<int64_t>(offsets.size()) - 1, start, stop, step);
  runtime.budget.create(static_cast<int64_t>(text.bytes.size()));
  if (bounds.step == 1) {
    if (bounds.stop <= bounds.start) return Value::string("");
    const size_t begin = offsets[static_cast<size_t>(bounds.start)];
    return Value::string(text.bytes.substr(begin, offsets[static_cast<size_t>(bounds.stop)] - begin));
  }
  std::string out;
  for (const int64_t i : slice_indices(bounds)) {
    const size_t at = static_cast<size_t>(i);
    out.append(text.bytes, offsets[at], offsets[at + 1] - offsets[at]);
  }
  return Value::string(std::move(out));
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, const std::string& name) {
  require_defined(object);
  if (auto value = python_attribute(runtime, object, name)) return *value;
  if (const Dict* dict = object.as_dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return missing_attribute(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (auto value = subscripted(runtime, object, key)) return *value;
  if (const Text* name = key.as_text()) {
    if (auto value = python_attribute(runtime, object, name->bytes)) return *value;
    return missing_attribute(object, name->bytes);
  }
  return Value::undefined(object_label(object) + " has no element " + repr(runtime.budget, key));
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (const Text* text = object.as_text()) return slice_text(runtime, *text, start, stop, step);
  const Sequence* sequence = object.as_sequence();
  if (!sequence || sequence->kind > SequenceKind::kRange) {
    fail(object.as_dict() ? "unhashable type: 'slice'" : "'" + type_name(object) + "' object is not subscriptable");
  }
  const auto bounds = slice_bounds(static_cast<int64_t>(sequence->items.size()), start, stop, step);
  std::vector<Value> items;
  for (const int64_t i : slice_indices(bounds)) items.push_back(sequence->items[static_cast<size_t>(i)]);
  runtime.budget.create(static_cast<int64_t>(items.size() * sizeof(Value)));
  return Value::sequence(sequence->kind, std::move(items));
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (const Sequence* sequence = value.as_sequence()) {
    items = sequence->items;
  } else if (const Dict* dict = value.as_dict()) {
    for (const auto& pair : dict->items) items.push_back(pair.first);
  } else if (const Text* text = value.as_text()) {
    runtime.budget.create(static_cast<int64_t>(text->bytes.size() * sizeof(Value)));
    for (size_t pos = 0, bytes = 0; pos < text->bytes.size(); pos += bytes) {
      bytes = character_at(text->bytes, pos).bytes;
      items.push_back(Value::string(text->bytes.substr(pos, bytes)));
    }
  } else if (Iterator* iterator = value.as<Iterator>()) {
    items = iterator->take_rest();
  } else if (!value.as_undefined()) {
    fail("'" + type_name(value) + "' object is not iterable");
  }
  runtime.budget.create(static_cast<int64_t>(items.size() * sizeof(Value)));
  return items;
}

bool is_iterable(const Value& value) {
  return value.as_sequence() || value.as_dict() || value.as_text() || value.as_undefined() || value.as<Iterator>();
}

std::optional<int64_t> length(Runtime& runtime, const Value& value) {
  if (const Text* text = value.as_text()) {
    if (text->ascii) return static_cast<int64_t>(text->bytes.size());
    runtime.budget.scan(text->bytes.size() * 8);
    return static_cast<int64_t>(character_count(text->bytes));
  }
  if (const Sequence* sequence = value.as_sequence()) return static_cast<int64_t>(sequence->items.size());
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->items.size());
  if (value.as_undefined()) return 0;
  return std::nullopt;
}

Value dict_view(Runtime& runtime, const Dict& dict, SequenceKind kind) {
  runtime.budget.create(static_cast<int64_t>(dict.items.size() * 3 * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    items.push_back(kind == SequenceKind::kDictKeys     ? key
                    : kind == SequenceKind::kDictValues ? value
                                                        : Value::tuple({key, value}));
  }
  return Value::sequence(kind, std::move(items));
}

}  // namespace assay::jinja
