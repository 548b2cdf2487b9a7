// `is` tests.
#include <algorithm>
#include <cmath>

#include "server/text/template/access.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/methods.h"

namespace assay::jinja {
namespace {

using Predicate = bool (*)(const Value&);

template <Predicate kPredicate>
Value holds(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(kPredicate(self));
}

bool is_undefined(const Value& v) { return v.as_undefined(); }
bool is_defined(const Value& v) { return !v.as_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.as_bool(); }
bool is_true(const Value& v) { return v.as_bool() && *v.as_bool(); }
bool is_false(const Value& v) { return v.as_bool() && !*v.as_bool(); }
bool is_integer(const Value& v) { return v.as_int(); }
bool is_float(const Value& v) { return v.as_float(); }
bool is_number(const Value& v) { return v.real().has_value(); }
bool is_string(const Value& v) { return v.as_text(); }
bool is_mapping(const Value& v) { return v.as_dict(); }
bool is_callable(const Value& v) { return v.as_undefined() || (v.as_object() && v.as_object()->is_callable()); }
bool is_sequence(const Value& v) {
  const Sequence* sequence = v.as_sequence();
  return v.as_text() || v.as_dict() || v.as_undefined() || (sequence && sequence->kind <= SequenceKind::kRange);
}
bool never(const Value&) { return false; }

Value remainder_is(Runtime& runtime, const Value& self, const Value& divisor, Int wanted) {
  const Value rest = binary(runtime.budget, "%", self, divisor);
  return Value::boolean(equals(runtime.budget, rest, Value::integer(wanted)));
}

Value odd(Runtime& runtime, const Value& self, const Arguments&) {
  return remainder_is(runtime, self, Value::integer(2), 1);
}
Value even(Runtime& runtime, const Value& self, const Arguments&) {
  return remainder_is(runtime, self, Value::integer(2), 0);
}
Value divisible_by(Runtime& runtime, const Value& self, const Arguments& a) {
  return remainder_is(runtime, self, a.at(0), 0);
}

Value lower(Runtime& runtime, const Value& self, const Arguments&) {
  return invoke(runtime, *find_in(character_methods(), "islower"), Value::string(to_text(runtime.budget, self)), {});
}
Value upper(Runtime& runtime, const Value& self, const Arguments&) {
  return invoke(runtime, *find_in(character_methods(), "isupper"), Value::string(to_text(runtime.budget, self)), {});
}

Value same_as(Runtime&, const Value& self, const Arguments& a) { return Value::boolean(self.same_as(a.at(0))); }
Value in(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::boolean(contains(runtime.budget, a.at(0), self));
}
Value is_filter(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(self.as_text() && find_filter(self.as_text()->bytes));
}
Value is_test(Runtime&, const Value& self, const Arguments&) {
  return Value::boolean(self.as_text() && find_test(self.as_text()->bytes));
}

enum class Comparison { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
constexpr const char* kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};

template <Comparison kComparison>
Value compares(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::boolean(compare(runtime.budget, kSymbols[static_cast<int>(kComparison)], self, a.at(0)));
}

constexpr Builtin kTests[] = {
    {"!=", "other", 1, compares<Comparison::kNotEqual>},
    {"<", "other", 1, compares<Comparison::kLess>},
    {"<=", "other", 1, compares<Comparison::kLessOrEqual>},
    {"==", "other", 1, compares<Comparison::kEqual>},
    {">", "other", 1, compares<Comparison::kGreater>},
    {">=", "other", 1, compares<Comparison::kGreaterOrEqual>},
    {"boolean", "", 0, holds<is_boolean>},
    {"callable", "", 0, holds<is_callable>},
    {"defined", "", 0, holds<is_defined>},
    {"divisibleby", "num", 1, divisible_by},
    {"eq", "other", 1, compares<Comparison::kEqual>},
    {"equalto", "other", 1, compares<Comparison::kEqual>},
    {"escaped", "", 0, holds<never>},
    {"even", "", 0, even},
    {"false", "", 0, holds<is_false>},
    {"filter", "", 0, is_filter},
    {"float", "", 0, holds<is_float>},
    {"ge", "other", 1, compares<Comparison::kGreaterOrEqual>},
    {"greaterthan", "other", 1, compares<Comparison::kGreater>},
    {"gt", "other", 1, compares<Comparison::kGreater>},
    {"in", "seq", 1, in},
    {"integer", "", 0, holds<is_integer>},
    {"iterable", "", 0, holds<is_iterable>},
    {"le", "other", 1, compares<Comparison::kLessOrEqual>},
    {"lessthan", "other", 1, compares<Comparison::kLess>},
    {"lower", "", 0, lower},
    {"lt", "other", 1, compares<Comparison::kLess>},
    {"mapping", "", 0, holds<is_mapping>},
    {"ne", "other", 1, compares<Comparison::kNotEqual>},
    {"none", "", 0, holds<is_none>},
    {"number", "", 0, holds<is_number>},
    {"odd", "", 0, odd},
    {"sameas", "other", 1, same_as},
    {"sequence", "", 0, holds<is_sequence>},
    {"string", "", 0, holds<is_string>},
    {"test", "", 0, is_test},
    {"true", "", 0, holds<is_true>},
    {"undefined", "", 0, holds<is_undefined>},
    {"upper", "", 0, upper},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_in(kTests, name); }

}  // namespace assay::jinja
