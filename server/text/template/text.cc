#include "server/text/template/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace assay::jinja {
namespace {

utf8proc_category_t category(int32_t code_point) { return utf8proc_category(code_point); }

bool is_printable(int32_t code_point) {
  if (code_point == ' ') return true;
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_cased(int32_t code_point) { return is_upper(code_point) || is_lower(code_point) || is_title(code_point); }

constexpr int32_t kSharpS = 0xDF, kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3, kDottedI = 0x130;

void append_upper(std::string& out, int32_t code_point) {
  if (code_point == kSharpS) {
    out += "SS";
  } else {
    append_utf8(out, utf8proc_toupper(code_point));
  }
}

void append_title(std::string& out, int32_t code_point) {
  if (code_point == kSharpS) {
    out += "Ss";
  } else {
    append_utf8(out, utf8proc_totitle(code_point));
  }
}

// A capital sigma is final when a letter stands before it and none after it.
bool is_final_sigma(std::string_view text, size_t pos, bool after_cased) {
  if (!after_cased) return false;
  const size_t next = pos + character_at(text, pos).bytes;
  return next >= text.size() || !is_cased(character_at(text, next).code_point);
}

void append_lower(std::string& out, std::string_view text, size_t pos, bool after_cased) {
  const int32_t code_point = character_at(text, pos).code_point;
  if (code_point == kCapitalSigma) {
    append_utf8(out, is_final_sigma(text, pos, after_cased) ? kFinalSigma : kSmallSigma);
  } else if (code_point == kDottedI) {
    out += "i\xCC\x87";
  } else {
    append_utf8(out, utf8proc_tolower(code_point));
  }
}

enum class Casing { kUpper, kLower, kTitle, kCapitalized };

std::string change_case(std::string_view text, Casing casing) {
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    const bool broken = c.bytes == 1 && (text[pos] & 0x80);
    const bool first = casing == Casing::kCapitalized ? pos == 0 : !after_cased;
    if (broken) {
      out += text[pos];
    } else if (casing == Casing::kUpper) {
      append_upper(out, c.code_point);
    } else if (casing != Casing::kLower && first) {
      append_title(out, c.code_point);
    } else {
      append_lower(out, text, pos, after_cased);
    }
    after_cased = !broken && is_cased(c.code_point);
    pos += c.bytes;
  }
  return out;
}

void append_escape(std::string& out, char letter, uint32_t value, int digits) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '\\';
  out += letter;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(value >> shift) & 15];
}

void append_quoted(std::string& out, std::string_view bytes, int32_t code_point, char quote_mark) {
  if (code_point == quote_mark || code_point == '\\') {
    out += '\\';
    out += static_cast<char>(code_point);
  } else if (code_point == '\n') {
    out += "\\n";
  } else if (code_point == '\r') {
    out += "\\r";
  } else if (code_point == '\t') {
    out += "\\t";
  } else if (is_printable(code_point)) {
    out += bytes;
  } else if (code_point < 0x100) {
    append_escape(out, 'x', code_point, 2);
  } else if (code_point < 0x10000) {
    append_escape(out, 'u', code_point, 4);
  } else {
    append_escape(out, 'U', code_point, 8);
  }
}

}  // namespace

Character character_at(std::string_view text, size_t pos) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + pos;
  utf8proc_int32_t code_point = 0;
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - pos), &code_point);
  if (length <= 0) return {static_cast<unsigned char>(text[pos]), 1};
  return {code_point, static_cast<size_t>(length)};
}

void append_utf8(std::string& out, uint32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

size_t character_count(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); pos += character_at(text, pos).bytes) ++count;
  return count;
}

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t pos = 0; pos < text.size(); pos += character_at(text, pos).bytes) offsets.push_back(pos);
  offsets.push_back(text.size());
  return offsets;
}

bool is_space(int32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(int32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(int32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(int32_t c) { return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9; }
bool is_alphanumeric(int32_t c) {
  const auto kind = category(c);
  return is_alpha(c) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}
bool is_upper(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool is_title(int32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

std::string to_upper(std::string_view text) { return change_case(text, Casing::kUpper); }
std::string to_lower(std::string_view text) { return change_case(text, Casing::kLower); }
std::string to_title(std::string_view text) { return change_case(text, Casing::kTitle); }
std::string to_capitalized(std::string_view text) { return change_case(text, Casing::kCapitalized); }

size_t skip_space(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Character c = character_at(text, pos);
    if (!is_space(c.code_point)) break;
    pos += c.bytes;
  }
  return pos;
}

std::string_view strip_left(std::string_view text) { return text.substr(skip_space(text, 0)); }

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xC0) == 0x80) --start;
    const Character c = character_at(text, start);
    if (start + c.bytes != text.size() || !is_space(c.code_point)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    append_quoted(out, text.substr(pos, c.bytes), c.code_point, mark);
    pos += c.bytes;
  }
  out += mark;
  return out;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char fixed[64];
  const auto fixed_end = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string out(fixed, fixed_end);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace assay::jinja
