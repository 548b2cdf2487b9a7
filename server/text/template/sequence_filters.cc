#include <algorithm>

#include "server/text/template/access.h"
#include "server/text/template/attribute_path.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/filters.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

Value length_filter(Runtime& runtime, const Value& self, const Arguments&) {
  const auto size = length(runtime, self);
  if (!size) fail("object of type '" + type_name(self) + "' has no len()");
  return Value::integer(*size);
}

Value list_filter(Runtime& runtime, const Value& self, const Arguments&) {
  return Value::list(iterate(runtime, self));
}

Value first_filter(Runtime& runtime, const Value& self, const Arguments&) {
  std::optional<Value> first;
  if (Iterator* iterator = self.as<Iterator>()) {
    first = iterator->next();
  } else {
    const auto items = iterate(runtime, self);
    if (!items.empty()) first = items.front();
  }
  return first ? *first : Value::undefined("No first item, sequence was empty.");
}

Value last_filter(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.as_object()) fail("'" + type_name(self) + "' object is not reversible");
  const auto items = iterate(runtime, self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value join_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const AttributePath path(value_argument(a, 1));
  const std::string separator = a.has(0) ? to_text(runtime.budget, a.at(0)) : "";
  std::string out, storage;
  bool first = true;
  for (const Value& item : iterate(runtime, self)) {
    if (!first) out += separator;
    const Value found = path.get(runtime, item);
    const std::string_view text = text_view(runtime.budget, found, storage);
    runtime.budget.create(static_cast<int64_t>(text.size() + separator.size()));
    out += text;
    first = false;
  }
  return Value::string(std::move(out));
}

Value reverse_filter(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.as_text()) return get_slice(runtime, self, Value(), Value(), Value::integer(-1));
  auto items = iterate(runtime, self);
  std::reverse(items.begin(), items.end());
  return self.as<Iterator>() ? Value::list(std::move(items)) : make_iterator(std::move(items));
}

Value sum_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const AttributePath path(value_argument(a, 0));
  Value total = a.has(1) ? a.at(1) : Value::integer(0);
  if (total.as_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(runtime, self)) total = binary(runtime.budget, "+", total, path.get(runtime, item));
  return total;
}

int64_t positive(const Arguments& a, size_t i, const char* what) {
  const int64_t value = to_index(a.at(i), what);
  if (value <= 0) fail(std::string(what) + " must be positive");
  return value;
}

Value batch_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const auto items = iterate(runtime, self);
  const size_t size = static_cast<size_t>(positive(a, 0, "linecount"));
  std::vector<Value> rows;
  for (size_t begin = 0; begin < items.size(); begin += std::min(size, items.size())) {
    const size_t end = begin + std::min(size, items.size() - begin);
    std::vector<Value> row(items.begin() + static_cast<int64_t>(begin), items.begin() + static_cast<int64_t>(end));
    if (!value_argument(a, 1).is_none() && row.size() < size) {
      runtime.budget.create(static_cast<int64_t>(std::min<size_t>(size, INT32_MAX) * sizeof(Value)));
      row.resize(size, a.at(1));
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return make_iterator(std::move(rows));
}

Value slice_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const auto items = iterate(runtime, self);
  const size_t count = static_cast<size_t>(positive(a, 0, "slices"));
  runtime.budget.create(static_cast<int64_t>(std::min<size_t>(count, INT32_MAX) * sizeof(Value)));
  const size_t share = items.size() / count, longer = items.size() % count;
  std::vector<Value> slices;
  auto next = items.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto end = next + static_cast<int64_t>(share + (i < longer));
    std::vector<Value> part(next, end);
    if (!value_argument(a, 1).is_none() && i >= longer) part.push_back(a.at(1));
    slices.push_back(Value::list(std::move(part)));
    next = end;
  }
  return make_iterator(std::move(slices));
}

Value items_filter(Runtime& runtime, const Value& self, const Arguments&) {
  if (self.as_undefined()) return make_iterator({});
  if (!self.as_dict()) fail("Can only get item pairs from a mapping.");
  return make_iterator(iterate(runtime, dict_view(runtime, *self.as_dict(), SequenceKind::kDictItems)));
}

// A filter by name, or an attribute, for each item.
Value map_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  std::vector<Value> out;
  if (!truthy(self)) return make_iterator({});
  const bool by_attribute = a.positional.empty() && named_argument(a, "attribute");
  if (by_attribute) {
    for (const auto& [name, value] : a.named) {
      if (name != "attribute" && name != "default") fail("Unexpected keyword argument " + quote(name));
    }
    const AttributePath path(*named_argument(a, "attribute"), named_argument(a, "default"));
    for (const Value& item : iterate(runtime, self)) out.push_back(path.get(runtime, item));
    return make_iterator(std::move(out));
  }
  if (a.positional.empty()) fail("map requires a filter argument");
  const std::string& name = text_of(a.positional[0], "the name of a filter");
  const Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named, {}};
  for (const Value& item : iterate(runtime, self)) out.push_back(call_filter(runtime, name, item, rest));
  return make_iterator(std::move(out));
}

// select, reject and their attr variants: items whose (attribute's) test has the wanted result.
template <bool kByAttribute, bool kWanted>
Value select_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  std::vector<Value> out;
  if (!truthy(self)) return make_iterator({});
  const size_t at = kByAttribute ? 1 : 0;
  if (a.positional.size() < at) fail("Missing parameter for attribute name");
  const AttributePath path(kByAttribute ? a.positional[0] : Value());
  Arguments rest{{}, a.named, {}};
  std::string test;
  if (a.positional.size() > at) {
    test = text_of(a.positional[at], "the name of a test");
    rest.positional.assign(a.positional.begin() + static_cast<int64_t>(at) + 1, a.positional.end());
  }
  for (const Value& item : iterate(runtime, self)) {
    const Value value = path.get(runtime, item);
    const bool result = test.empty() ? truthy(value) : call_test(runtime, test, value, rest);
    if (result == kWanted) out.push_back(item);
  }
  return make_iterator(std::move(out));
}

constexpr Builtin kFilters[] = {
    {"batch", "linecount fill_with", 1, batch_filter},
    {"count", "", 0, length_filter},
    {"first", "", 0, first_filter},
    {"items", "", 0, items_filter},
    {"join", "d attribute", 0, join_filter},
    {"last", "", 0, last_filter},
    {"length", "", 0, length_filter},
    {"list", "", 0, list_filter},
    {"map", "*", 0, map_filter},
    {"reject", "*", 0, select_filter<false, false>},
    {"rejectattr", "*", 0, select_filter<true, false>},
    {"reverse", "", 0, reverse_filter},
    {"select", "*", 0, select_filter<false, true>},
    {"selectattr", "*", 0, select_filter<true, true>},
    {"slice", "slices fill_with", 1, slice_filter},
    {"sum", "attribute start", 0, sum_filter},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kFilters; }

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters(), order_filters(), conversion_filters()}) {
    for (const Builtin& builtin : table) {
      if (name == builtin.name) return &builtin;
    }
  }
  return nullptr;
}

}  // namespace assay::jinja
