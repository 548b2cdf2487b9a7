#include "server/text/template/lexer.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "server/text/template/string_literal.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }

// \n for every \r\n and \r, less one final newline.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

struct RawEnd {
  size_t begin;  // of the tag
  char sign;
  size_t end;  // after the tag and what it trims
};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) text_and_tag();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool at(size_t pos, std::string_view text) const { return source_.compare(pos, text.size(), text) == 0; }
  char peek(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }
  char sign_at(size_t pos) const { return peek(pos) == '-' || peek(pos) == '+' ? source_[pos] : '\0'; }

  void push(TokenKind kind, std::string text, Value number = {}) {
    tokens_.push_back({kind, std::move(text), std::move(number), line_});
  }

  // Moves to `end`, counting lines.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<int64_t>(pos_),
                                         source_.begin() + static_cast<int64_t>(end), '\n'));
    line_starting_ = end > pos_ ? source_[end - 1] == '\n' : line_starting_;
    pos_ = end;
  }

  [[noreturn]] void error(const std::string& message) const { throw ParseError(line_, message); }

  size_t find_tag() const {
    for (size_t i = pos_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      const char next = peek(i + 1);
      if (next == '%' || next == '{' || next == '#') return i;
    }
    return std::string::npos;
  }

  // Text before a tag that begins at `tag`, with what the tag strips from it.
  void push_text(size_t tag, char sign, bool may_lstrip) {
    std::string_view text(source_.data() + pos_, tag - pos_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool blank = start < text.size() && skip_space(text, start) == text.size();
      if (blank && (start > 0 || line_starting_)) text = text.substr(0, start);
    }
    if (!text.empty()) push(TokenKind::kData, std::string(text));
    advance(tag);
  }

  void text_and_tag() {
    const size_t tag = find_tag();
    if (tag == std::string::npos) {
      push(TokenKind::kData, source_.substr(pos_));
      return advance(source_.size());
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    push_text(tag, sign, kind != '{');
    if (kind == '%') {
      if (const size_t raw = raw_begin_end(tag)) return raw_block(raw);
    }
    advance(tag + 2 + (sign != '\0'));
    if (kind == '#') return comment();
    push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    tag_body(kind == '%');
  }

  // End of `{% raw %}` at `tag`, or 0 when the tag is another one.
  size_t raw_begin_end(size_t tag) const {
    size_t pos = skip_space(source_, tag + 2 + (sign_at(tag + 2) != '\0'));
    if (!at(pos, "raw")) return 0;
    pos = skip_space(source_, pos + 3);
    if (at(pos, "-%}")) return skip_space(source_, pos + 3);
    return at(pos, "%}") ? pos + 2 : 0;
  }

  std::optional<RawEnd> raw_end_at(size_t tag) const {
    const char sign = sign_at(tag + 2);
    size_t pos = skip_space(source_, tag + 2 + (sign != '\0'));
    if (!at(pos, "endraw")) return std::nullopt;
    pos = skip_space(source_, pos + 6);
    if (at(pos, "+%}")) return RawEnd{tag, sign, pos + 3};
    if (at(pos, "-%}")) return RawEnd{tag, sign, skip_space(source_, pos + 3)};
    if (at(pos, "%}")) return RawEnd{tag, sign, pos + 2 + (peek(pos + 2) == '\n')};
    return std::nullopt;
  }

  void raw_block(size_t begin) {
    advance(begin);
    for (size_t tag = pos_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      if (const auto end = raw_end_at(tag)) {
        push_text(end->begin, end->sign, true);
        return advance(end->end);
      }
    }
    if (pos_ < source_.size()) error("Missing end of raw directive");
  }

  void comment() {
    size_t end = source_.find("#}", pos_);
    if (end == std::string::npos && pos_ == source_.size()) return;
    if (end == std::string::npos) error("Missing end of comment tag");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    end += 2;
    if (sign == '-') {
      end = skip_space(source_, end);
    } else if (sign != '+' && peek(end) == '\n') {
      ++end;
    }
    advance(end);
  }

  // The end of the tag at pos_, after what it trims; 0 when it does not end here.
  size_t tag_end(bool block) const {
    const char* close = block ? "%}" : "}}";
    if (at(pos_, close)) return pos_ + 2 + (block && peek(pos_ + 2) == '\n');
    if (peek(pos_) == '-' && at(pos_ + 1, close)) return skip_space(source_, pos_ + 3);
    if (block && peek(pos_) == '+' && at(pos_ + 1, close)) return pos_ + 3;
    return 0;
  }

  void tag_body(bool block) {
    brackets_.clear();
    while (pos_ < source_.size()) {
      const size_t end = brackets_.empty() ? tag_end(block) : 0;
      if (end) {
        push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
        return advance(end);
      }
      const size_t after_space = skip_space(source_, pos_);
      if (after_space > pos_) {
        advance(after_space);
      } else {
        token();
      }
    }
  }

  void token() {
    const char c = source_[pos_];
    if (is_decimal(c)) return number();
    if (is_name_start(c)) return name();
    if (c == '\'' || c == '"') return string();
    operation();
  }

  // End of digits of one base with single underscores between them.
  size_t digits_end(size_t pos, const char* allowed) const {
    const std::string_view set(allowed);
    const auto is_digit_of_base = [&](size_t i) { return i < source_.size() && set.find(source_[i]) != set.npos; };
    while (is_digit_of_base(pos) || (peek(pos) == '_' && is_digit_of_base(pos + 1))) ++pos;
    return pos;
  }

  // End of the float at pos_, or 0 when the number is an integer.
  size_t float_end() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') return 0;
    static constexpr char kDecimal[] = "0123456789";
    size_t end = digits_end(pos_, kDecimal);
    bool is_float = false;
    if (peek(end) == '.' && is_decimal(peek(end + 1))) {
      end = digits_end(end + 1, kDecimal);
      is_float = true;
    }
    if (peek(end) == 'e' || peek(end) == 'E') {
      const size_t exponent = end + 1 + (peek(end + 1) == '+' || peek(end + 1) == '-');
      if (is_decimal(peek(exponent))) {
        end = digits_end(exponent, kDecimal);
        is_float = true;
      }
    }
    return is_float ? end : 0;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    return digits;
  }

  void number() {
    if (const size_t end = float_end()) {
      const std::string digits = without_underscores(pos_, end);
      push(TokenKind::kNumber, digits, Value::number(std::strtod(digits.c_str(), nullptr)));
      return advance(end);
    }
    integer();
  }

  void integer() {
    int base = 10;
    size_t begin = pos_, end = 0;
    const char letter = static_cast<char>(peek(pos_ + 1) | 0x20);
    if (source_[pos_] == '0' && (letter == 'x' || letter == 'o' || letter == 'b')) {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
      const char* allowed = base == 16 ? "0123456789abcdefABCDEF" : base == 8 ? "01234567" : "01";
      begin = pos_ + 2;
      end = digits_end(begin, allowed);
    }
    if (end <= begin) {
      base = 10;
      begin = pos_;
      end = digits_end(begin, source_[pos_] == '0' ? "0" : "0123456789");
    }
    const std::string digits = without_underscores(begin, end);
    const auto value = parse_digits(digits, base);
    if (!value) error("integer " + digits + " is too large");
    push(TokenKind::kNumber, digits, Value::integer(*value));
    advance(end);
  }

  void name() {
    size_t end = pos_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    push(TokenKind::kName, source_.substr(pos_, end - pos_));
    advance(end);
  }

  void string() {
    const char mark = source_[pos_];
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != mark) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error(std::string("unexpected char ") + quote(std::string(1, mark)));
    std::string problem;
    const auto decoded = decode_string_literal(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1), &problem);
    if (!decoded) error(problem);
    push(TokenKind::kString, *decoded);
    advance(end + 1);
  }

  void operation() {
    static const std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const auto text : kTwo) {
      if (at(pos_, text)) {
        push(TokenKind::kOperator, std::string(text));
        return advance(pos_ + 2);
      }
    }
    const char c = source_[pos_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      error("unexpected char " + quote(source_.substr(pos_, character_at(source_, pos_).bytes)));
    }
    balance(c);
    push(TokenKind::kOperator, std::string(1, c));
    advance(pos_ + 1);
  }

  void balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) error(std::string("unexpected '") + c + "'");
    if (brackets_.back() != c) error(std::string("unexpected '") + c + "', expected '" + brackets_.back() + "'");
    brackets_.pop_back();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // closing ones still expected
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalized(source)).run(); }

}  // namespace assay::jinja
