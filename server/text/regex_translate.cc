#include "server/text/regex_translate.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace assay {
namespace {

// Oniguruma's \w; PCRE2's leaves out marks and some letters.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// White_Space; PCRE2's own \s adds U+180E.
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kHex = "0-9a-fA-F";

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kPosixClasses{{
    {"alpha", "\\p{Alphabetic}"},
    {"digit", "\\p{Nd}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"space", kSpace},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}$+<=>^`|~"},
}};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> run() {
    while (at_ < in_.size() && error_.empty()) item();
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(size_t n = 1) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }
  void replace(size_t n, std::string_view text) {
    at_ += n;
    out_.append(text);
  }
  void fail(std::string_view what) {
    if (error_.empty()) error_ = fmt::format("{} at byte {} of the regular expression is not supported", what, at_);
  }

  void item() {
    switch (peek()) {
      case '\\':
        return escape();
      case '[':
        return char_class();
      case '(':
        return group();
      case '{':
        return interval();
      default:
        return copy();
    }
  }

  void escape() {
    switch (peek(1)) {
      case 's':
        return replace(2, fmt::format("[{}]", kSpace));
      case 'S':
        return replace(2, fmt::format("[^{}]", kSpace));
      case 'w':
        return replace(2, fmt::format("[{}]", kWord));
      case 'W':
        return replace(2, fmt::format("[^{}]", kWord));
      case 'h':
        return replace(2, fmt::format("[{}]", kHex));
      case 'H':
        return replace(2, fmt::format("[^{}]", kHex));
      case 'b':
        return replace(2, fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord));
      case 'B':
        return replace(2, fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord));
      case 'd':
      case 'D':
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
      case 'K':
      case 'R':
      case 'k':
      case 'g':
        return copy(2);
      default:
        return common_escape();
    }
  }

  void class_escape() {
    switch (peek(1)) {
      case 's':
        return replace(2, kSpace);
      case 'S':
        return replace(2, "\\P{White_Space}");
      case 'w':
        return replace(2, kWord);
      case 'h':
        return replace(2, kHex);
      case 'b':
        return replace(2, "\\x08");
      case 'd':
      case 'D':
        return copy(2);
      default:
        return common_escape();
    }
  }

  // Escapes that mean the same inside and outside of a class.
  void common_escape() {
    const char c = peek(1);
    switch (c) {
      case '\0':
        return fail("a single backslash");
      case 'v':
        return replace(2, "\\x0B");
      case 'n':
      case 't':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      case 'u':
        return code_unit();
      case 'x':
        return hex();
      case 'p':
      case 'P':
        return property();
      default:
        break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fail(fmt::format("the escape \\{}", c));
    copy(2);
  }

  size_t hex_digits(size_t from) const {
    size_t n = 0;
    while (kHexDigits.find(peek(from + n)) != std::string_view::npos && peek(from + n) != '\0') ++n;
    return n;
  }

  void code_unit() {
    if (hex_digits(2) < 4) return fail("\\u without four hexadecimal digits");
    const std::string digits(in_.substr(at_ + 2, 4));
    replace(6, fmt::format("\\x{{{}}}", digits));
  }

  void hex() {
    if (peek(2) == '{') return copy(3);
    if (hex_digits(2) >= 2 && peek(2) >= '8') return fail("a byte above \\x7F");
    copy(2);
  }

  void property() {
    const size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) return fail("\\p without {name}");
    const std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames{
        {{"Digit", "Nd"}, {"Space", "White_Space"}, {"Punct", "P"}}};
    for (const auto& [from, to] : kNames) {
      if (name == from) return replace(close + 1 - at_, fmt::format("\\{}{{{}}}", peek(1), to));
    }
    copy(close + 1 - at_);
  }

  void char_class() {
    copy();
    if (peek() == '^') copy();
    if (peek() == ']') replace(1, "\\]");
    while (at_ < in_.size() && peek() != ']' && error_.empty()) {
      if (next_is("[:")) {
        posix_class();
      } else if (peek() == '[') {
        fail("a character class inside a character class");
      } else if (next_is("&&")) {
        fail("the class intersection &&");
      } else if (peek() == '\\') {
        class_escape();
      } else {
        copy();
      }
    }
    if (at_ < in_.size()) copy();
  }

  void posix_class() {
    for (const auto& [name, members] : kPosixClasses) {
      const std::string written = fmt::format("[:{}:]", name);
      if (next_is(written)) return replace(written.size(), members);
    }
    fail("this bracket class");
  }

  // (?m) means "dot matches newline" in Ruby syntax, which PCRE2 spells (?s).
  void group() {
    copy();
    if (peek() == '*') return fail("(*");
    if (peek() != '?') return;
    copy();
    while (kFlags.find(peek()) != std::string_view::npos && peek() != '\0') {
      if (peek() == 'm') {
        replace(1, "s");
      } else {
        copy();
      }
    }
  }

  size_t digits(size_t from) const {
    size_t n = 0;
    while (peek(from + n) >= '0' && peek(from + n) <= '9') ++n;
    return n;
  }

  // {n}, {n,}, {n,m} and {,m}. Anything else is a literal brace in both syntaxes.
  void interval() {
    const size_t low = digits(1);
    const bool comma = peek(1 + low) == ',';
    const size_t high = comma ? digits(2 + low) : 0;
    const size_t close = 1 + low + comma + high;
    if (peek(close) != '}' || low + high == 0) return replace(1, "\\{");
    if (peek(close + 1) == '+') return fail("'+' after an interval");
    if (peek(close + 1) == '?' && !comma) return fail("'?' after {n}");
    if (low == 0) {
      replace(1, "{0");
      return copy(close);
    }
    copy(close + 1);
  }

  static constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  static constexpr std::string_view kFlags = "imx-";

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  std::string error_;
};

}  // namespace

absl::StatusOr<std::string> translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace assay
