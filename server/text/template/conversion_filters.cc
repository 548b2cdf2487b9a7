#include <algorithm>
#include <charconv>
#include <cmath>

#include "server/text/template/access.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/filters.h"
#include "server/text/template/format.h"
#include "server/text/template/string_literal.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

Value abs_filter(Runtime&, const Value& self, const Arguments&) {
  require_defined(self);
  if (const double* d = self.as_float()) return Value::number(std::fabs(*d));
  const auto i = self.integral();
  if (!i) fail("bad operand type for abs(): '" + type_name(self) + "'");
  return *i < 0 ? unary("-", Value::integer(*i)) : Value::integer(*i);
}

Value default_filter(Runtime&, const Value& self, const Arguments& a) {
  const bool replaced = self.as_undefined() || (bool_argument(a, 1, false) && !truthy(self));
  if (!replaced) return self;
  return a.has(0) ? a.at(0) : Value::string("");
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

bool underscores_are_between_digits(std::string_view text) {
  if (!text.empty() && (text.front() == '_' || text.back() == '_')) return false;
  return text.find("__") == std::string_view::npos;
}

int prefix_base(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 0;
  const char letter = static_cast<char>(text[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

// int(text, base); nothing where Python raises ValueError.
std::optional<Int> parse_integer(std::string_view text, int base) {
  text = strip_right(strip_left(text));
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  const int prefixed = prefix_base(text);
  if (prefixed && (base == 0 || base == prefixed)) {
    base = prefixed;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || !underscores_are_between_digits(text)) return std::nullopt;
  const auto value = parse_digits(without_underscores(text), base);
  if (!value) return std::nullopt;
  return negative ? -*value : *value;
}

// float(text); nothing where Python raises ValueError.
std::optional<double> parse_float(std::string_view text) {
  text = strip_right(strip_left(text));
  if (!underscores_are_between_digits(text)) return std::nullopt;
  std::string number = to_lower(without_underscores(text));
  const bool negative = !number.empty() && number[0] == '-';
  if (negative || (!number.empty() && number[0] == '+')) number.erase(0, 1);
  if (number.empty() || number[0] == '-' || number[0] == '+') return std::nullopt;
  double value = 0;
  const char* end = number.data() + number.size();
  const auto result = std::from_chars(number.data(), end, value);
  if (result.ptr != end || number.back() == ')') return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) value = std::strtod(number.c_str(), nullptr);
  return negative ? -value : value;
}

std::optional<Int> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 1.7e38) fail("integer overflow: the value does not fit 127 bits");
  return static_cast<Int>(value);
}

Value int_filter(Runtime&, const Value& self, const Arguments& a) {
  require_defined(self);
  std::optional<Int> value;
  if (const Text* text = self.as_text()) {
    value = parse_integer(text->bytes, static_cast<int>(index_argument(a, 1, 10, "base")));
    if (!value) {
      if (const auto real = parse_float(text->bytes)) value = truncated(*real);
    }
  } else if (self.integral()) {
    value = self.integral();
  } else if (const double* d = self.as_float()) {
    value = truncated(*d);
  }
  if (value) return Value::integer(*value);
  return a.has(0) ? a.at(0) : Value::integer(0);
}

Value float_filter(Runtime&, const Value& self, const Arguments& a) {
  require_defined(self);
  if (const auto value = self.real()) return Value::number(*value);
  if (const Text* text = self.as_text()) {
    if (const auto value = parse_float(text->bytes)) return Value::number(*value);
  }
  return a.has(0) ? a.at(0) : Value::number(0);
}

Int power_of_ten(int64_t exponent) {
  Int value = 1;
  for (int64_t i = 0; i < std::min<int64_t>(exponent, 37); ++i) value *= 10;
  return value;
}

// Half to even, at 10^digits.
Int round_integer(Int value, int64_t digits) {
  const Int unit = power_of_ten(digits);
  Int down = value / unit * unit;
  if (down > value) down -= unit;
  const Int rest = value - down, half = unit / 2;
  const bool up = rest > half || (rest == half && (down / unit) % 2 != 0);
  return up ? down + unit : down;
}

double round_double(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  return std::strtod(format_float(value, static_cast<int>(precision), 'f', false).c_str(), nullptr);
}

Value round_filter(Runtime&, const Value& self, const Arguments& a) {
  require_defined(self);
  const int64_t precision = index_argument(a, 0, 0, "precision");
  const std::string method = a.has(1) ? text_argument(a, 1, "method") : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (!self.real()) fail("type " + type_name(self) + " doesn't define __round__ method");
  if (method == "common") {
    if (const double* d = self.as_float()) return Value::number(round_double(*d, precision));
    return Value::integer(precision >= 0 ? *self.integral() : round_integer(*self.integral(), -precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *self.real() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value string_filter(Runtime& runtime, const Value& self, const Arguments&) {
  return self.as_text() ? self : Value::string(to_text(runtime.budget, self));
}

Value same(Runtime&, const Value& self, const Arguments&) { return self; }

std::string indent_text(Budget& budget, const Value& indent) {
  if (const Text* text = indent.as_text()) return text->bytes;
  const int64_t width = std::max<int64_t>(to_index(indent, "indent"), 0);
  budget.create(width);
  return std::string(static_cast<size_t>(width), ' ');
}

// tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)
Value tojson(Runtime& runtime, const Value& self, const Arguments& a) {
  JsonStyle style;
  style.ascii_only = bool_argument(a, 0, false);
  style.sort_keys = bool_argument(a, 3, false);
  const Value indent = value_argument(a, 1);
  if (!indent.is_none()) {
    style.pretty = true;
    style.indent = indent_text(runtime.budget, indent);
    style.item_separator = ",";
  }
  const Value separators = value_argument(a, 2);
  if (!separators.is_none()) {
    const auto parts = iterate(runtime, separators);
    if (parts.size() != 2 || !parts[0].as_text() || !parts[1].as_text()) fail("separators must be two strings");
    style.item_separator = parts[0].as_text()->bytes;
    style.key_separator = parts[1].as_text()->bytes;
  }
  return Value::string(to_json(runtime.budget, self, style));
}

Value attr_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string& name = text_argument(a, 0, "attribute name");
  // Unlike `.`, never an item of a dict.
  const Dict* dict = self.as_dict();
  if (dict && dict->find(name) && !find_method(self, name)) {
    return Value::undefined("'dict object' has no attribute " + quote(name));
  }
  return get_attribute(runtime, self, name);
}

Value filesizeformat(Runtime&, const Value& self, const Arguments& a) {
  static const char* const kLetters[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  require_defined(self);
  const auto bytes = self.as_text() ? parse_float(self.as_text()->bytes) : self.real();
  if (!bytes) fail("filesizeformat needs a number, not " + type_name(self));
  const bool binary_units = bool_argument(a, 0, false);
  const double base = binary_units ? 1024 : 1000;
  if (*bytes == 1) return Value::string("1 Byte");
  if (*bytes < base) return Value::string(int_repr(static_cast<Int>(*bytes)) + " Bytes");
  double unit = base * base;
  int i = 0;
  for (; i < 7 && *bytes >= unit; ++i) unit *= base;
  const std::string letter = binary_units && i == 0 ? "K" : kLetters[i];
  return Value::string(format_float(base * *bytes / unit, 1, 'f', false) + " " + letter + (binary_units ? "iB" : "B"));
}

constexpr Builtin kFilters[] = {
    {"abs", "", 0, abs_filter},
    {"attr", "name", 1, attr_filter},
    {"d", "default_value boolean", 0, default_filter},
    {"default", "default_value boolean", 0, default_filter},
    {"filesizeformat", "binary", 0, filesizeformat},
    {"float", "default", 0, float_filter},
    {"int", "default base", 0, int_filter},
    {"round", "precision method", 0, round_filter},
    {"safe", "", 0, same},
    {"string", "", 0, string_filter},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
};

}  // namespace

std::span<const Builtin> conversion_filters() { return kFilters; }

}  // namespace assay::jinja
