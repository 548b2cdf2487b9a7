#include "server/text/template/string_literal.h"

#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

const char* simple_escape(char c) {
  switch (c) {
    case '\n': return "";
    case '\\': return "\\";
    case '\'': return "'";
    case '"': return "\"";
    case 'a': return "\a";
    case 'b': return "\b";
    case 'f': return "\f";
    case 'n': return "\n";
    case 'r': return "\r";
    case 't': return "\t";
    case 'v': return "\v";
    default: return nullptr;
  }
}

int escape_digits(char letter) { return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0; }

bool append_code_point(std::string& out, std::string_view digits, std::string* problem) {
  const auto value = parse_digits(digits, 16);
  if (!value) {
    *problem = "truncated escape in a string";
  } else if (*value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000)) {
    *problem = "a string escape names no character";
  } else {
    append_utf8(out, static_cast<uint32_t>(*value));
    return true;
  }
  return false;
}

}  // namespace

std::optional<Int> parse_digits(std::string_view digits, int base) {
  if (digits.empty()) return std::nullopt;
  Int value = 0;
  for (const char c : digits) {
    const int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value)) {
      return std::nullopt;
    }
  }
  return value;
}

std::optional<std::string> decode_string_literal(std::string_view body, std::string* problem) {
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out += body[i];
      continue;
    }
    const char c = body[++i];
    if (const char* text = simple_escape(c)) {
      out += text;
    } else if (const int count = escape_digits(c)) {
      if (body.size() - i - 1 < static_cast<size_t>(count)) {
        *problem = "truncated escape in a string";
        return std::nullopt;
      }
      if (!append_code_point(out, body.substr(i + 1, count), problem)) return std::nullopt;
      i += count;
    } else if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = i;
      while (end < body.size() && end < i + 3 && body[end] >= '0' && body[end] <= '7')
        value = value * 8 + (body[end++] - '0');
      append_utf8(out, value);
      i = end - 1;
    } else if (c == 'N') {
      *problem = "\\N{...} escapes are not supported";
      return std::nullopt;
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace assay::jinja
