// Methods of lists, tuples, ranges, dicts and numbers that change nothing.
#include <algorithm>
#include <cmath>

#include "server/text/template/access.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/methods.h"

namespace assay::jinja {
namespace {

const std::vector<Value>& items(const Value& self) { return self.as_sequence()->items; }

Value index(Runtime& runtime, const Value& self, const Arguments& a) {
  const int64_t size = static_cast<int64_t>(items(self).size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t at = index_argument(a, i, otherwise, "index");
    return std::min(at < 0 ? std::max<int64_t>(at + size, 0) : at, size);
  };
  for (int64_t i = bound(1, 0); i < bound(2, size); ++i) {
    if (equals(runtime.budget, items(self)[static_cast<size_t>(i)], a.at(0))) return Value::integer(i);
  }
  fail(repr(runtime.budget, a.at(0)) + " is not in " + type_name(self));
}

Value count(Runtime& runtime, const Value& self, const Arguments& a) {
  Int found = 0;
  for (const Value& item : items(self)) found += equals(runtime.budget, item, a.at(0));
  return Value::integer(found);
}

Value same(Runtime&, const Value& self, const Arguments&) { return self; }

constexpr Builtin kSequenceMethods[] = {
    {"index", "value start stop", 1, index},
    {"count", "value", 1, count},
    {"copy", "", 0, same},
};

template <SequenceKind kKind>
Value view(Runtime& runtime, const Value& self, const Arguments&) {
  return dict_view(runtime, *self.as_dict(), kKind);
}

Value get(Runtime& runtime, const Value& self, const Arguments& a) {
  if (!is_hashable(a.at(0))) fail("unhashable type: '" + type_name(a.at(0)) + "'");
  const Value* found = self.as_dict()->find(runtime.budget, a.at(0));
  return found ? *found : value_argument(a, 1);
}

constexpr Builtin kDictMethods[] = {
    {"keys", "", 0, view<SequenceKind::kDictKeys>},
    {"values", "", 0, view<SequenceKind::kDictValues>},
    {"items", "", 0, view<SequenceKind::kDictItems>},
    {"get", "key default", 1, get},
    {"copy", "", 0, same},
};

Value is_integer(Runtime&, const Value& self, const Arguments&) {
  const double value = *self.real();
  return Value::boolean(std::isfinite(value) && value == std::floor(value));
}

Value bit_length(Runtime&, const Value& self, const Arguments&) {
  Int value = self.integral().value_or(0);
  int bits = 0;
  for (; value != 0; value /= 2) ++bits;
  return Value::integer(bits);
}

constexpr Builtin kNumberMethods[] = {
    {"is_integer", "", 0, is_integer},
    {"bit_length", "", 0, bit_length},
};

}  // namespace

std::span<const Builtin> sequence_methods() { return kSequenceMethods; }
std::span<const Builtin> dict_methods() { return kDictMethods; }
std::span<const Builtin> number_methods() { return kNumberMethods; }

const Builtin* find_method(const Value& self, std::string_view name) {
  if (self.as_text()) {
    const Builtin* method = find_in(string_methods(), name);
    return method ? method : find_in(character_methods(), name);
  }
  if (self.as_dict()) return find_in(dict_methods(), name);
  const Sequence* sequence = self.as_sequence();
  if (sequence && sequence->kind <= SequenceKind::kRange) {
    const bool list_only = name == "copy" && sequence->kind != SequenceKind::kList;
    return list_only ? nullptr : find_in(sequence_methods(), name);
  }
  if (self.as_float()) return name == "is_integer" ? find_in(number_methods(), name) : nullptr;
  if (self.integral()) return name == "bit_length" ? find_in(number_methods(), name) : nullptr;
  return nullptr;
}

}  // namespace assay::jinja
