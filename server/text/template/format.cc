#include "server/text/template/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

constexpr int kMaxPrecision = 1000;

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';
  int precision = -1;
  char type = '\0';
};

int64_t parse_number(const std::string& text, size_t& pos) {
  int64_t value = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
    value = value * 10 + (text[pos++] - '0');
    if (value > INT32_MAX) fail("Too many decimal digits in format string");
  }
  return value;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

void parse_fill_and_align(const std::string& text, size_t& pos, Spec& spec) {
  if (text.empty()) return;
  const size_t first = character_at(text, 0).bytes;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    pos = first + 1;
  } else if (is_align(text[0])) {
    spec.align = text[pos++];
  }
}

Spec parse_spec(const std::string& text) {
  Spec spec;
  size_t pos = 0;
  parse_fill_and_align(text, pos, spec);
  const auto at = [&](const char* any) {
    return pos < text.size() && std::string_view(any).find(text[pos]) != std::string_view::npos;
  };
  if (at("+- ")) spec.sign = text[pos++];
  if (at("#")) spec.alternate = ++pos;
  if (at("0")) {
    ++pos;
    if (!spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = parse_number(text, pos);
  if (at(",_")) spec.grouping = text[pos++];
  if (at(".")) {
    const size_t digits = ++pos;
    spec.precision = static_cast<int>(parse_number(text, pos));
    if (pos == digits) fail("Format specifier missing precision");
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos != text.size()) fail("Invalid format specifier");
  return spec;
}

// Separators between groups of digits of the whole part that starts after a sign.
std::string grouped(const std::string& number, char separator, size_t group) {
  if (!separator) return number;
  const size_t begin = !number.empty() && number[0] == '-' ? 1 : 0;
  size_t end = begin;
  while (end < number.size() && std::isxdigit(static_cast<unsigned char>(number[end]))) ++end;
  std::string out = number.substr(0, begin);
  for (size_t i = begin; i < end; ++i) {
    if (i > begin && (end - i) % group == 0) out += separator;
    out += number[i];
  }
  return out + number.substr(end);
}

std::string with_sign(std::string number, char sign) {
  if (number[0] != '-' && sign != '-') number.insert(0, 1, sign);
  return number;
}

[[noreturn]] void unknown_code(char code, const Value& value) {
  fail(std::string("Unknown format code '") + code + "' for object of type '" + type_name(value) + "'");
}

std::string format_double(const Spec& spec, double value, const Value& original) {
  char type = spec.type ? spec.type : (spec.precision >= 0 ? 'g' : 'r');
  if (std::string_view("eEfFgG%rn").find(type) == std::string_view::npos) unknown_code(type, original);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (type == 'r') return grouped(float_repr(value), spec.grouping, 3);
  if (type == '%') return grouped(format_float(value * 100, precision, 'f', spec.alternate), spec.grouping, 3) + "%";
  if (type == 'n') type = 'g';
  std::string text = format_float(value, precision, type, spec.alternate);
  const bool whole = text.find_first_of(".en") == std::string::npos;
  if (!spec.type && whole) text += ".0";
  return grouped(text, spec.grouping, 3);
}

std::string format_integer(const Spec& spec, Int value, const Value& original) {
  const char type = spec.type ? spec.type : 'd';
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return format_double(spec, static_cast<double>(value), original);
  }
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  if (type == 'c') {
    std::string out;
    if (value < 0 || value > 0x10FFFF) fail("%c arg not in range(0x110000)");
    append_utf8(out, static_cast<uint32_t>(value));
    return out;
  }
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  if (base == 10 && type != 'd' && type != 'n') unknown_code(type, original);
  std::string digits = grouped(digits_of(value, base, type == 'X'), spec.grouping, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) digits.insert(digits[0] == '-' ? 1 : 0, std::string("0") + type);
  return digits;
}

std::string format_text(const Spec& spec, const Value& value, std::string text) {
  if (spec.type && spec.type != 's') unknown_code(spec.type, value);
  if (spec.align == '=' && spec.fill != "0") fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) {
    const auto offsets = character_offsets(text);
    text.resize(offsets[std::min<size_t>(static_cast<size_t>(spec.precision), offsets.size() - 1)]);
  }
  return text;
}

}  // namespace

std::string digits_of(Int value, int base, bool upper) {
  if (base == 10) return int_repr(value);
  const char* symbols = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  const bool negative = value < 0;
  do {
    const Int digit = value % base;
    out += symbols[static_cast<int>(negative ? -digit : digit)];
    value /= base;
  } while (value != 0);
  if (negative) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string format_float(double value, int precision, char type, bool alternate) {
  if (precision > kMaxPrecision) fail("precision is too large");
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  std::string out(static_cast<size_t>(precision) + 350, '\0');
  const int written = std::snprintf(out.data(), out.size(), format.c_str(), precision, value);
  out.resize(static_cast<size_t>(written));
  if (std::isnan(value)) out = type < 'a' ? "NAN" : "nan";
  return out;
}

std::string pad(Budget& budget, std::string text, int64_t width, const std::string& fill, char align) {
  const int64_t missing = width - static_cast<int64_t>(character_count(text));
  if (missing <= 0) return text;
  budget.create(missing * static_cast<int64_t>(fill.size()));
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += fill;
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
  if (align == '=' && has_sign) return text[0] + before + text.substr(1);
  return before + text + after;
}

std::string format_value(Budget& budget, const Value& value, const std::string& spec_text) {
  if (spec_text.empty()) return to_text(budget, value);
  const bool plain = value.as_text() || value.real() || value.as_undefined();
  if (!plain) fail("unsupported format string passed to " + type_name(value) + ".__format__");
  const Spec spec = parse_spec(spec_text);
  if (const double* d = value.as_float()) {
    return pad(budget, with_sign(format_double(spec, *d, value), spec.sign), spec.width, spec.fill,
               spec.align ? spec.align : '>');
  }
  const bool bool_as_text = value.as_bool() && !spec.type && spec.width == 0;
  if (value.integral() && !bool_as_text) {
    return pad(budget, with_sign(format_integer(spec, *value.integral(), value), spec.sign), spec.width, spec.fill,
               spec.align ? spec.align : '>');
  }
  const char align = spec.align && spec.align != '=' ? spec.align : '<';
  return pad(budget, format_text(spec, value, to_text(budget, value)), spec.width, spec.fill, align);
}

}  // namespace assay::jinja
