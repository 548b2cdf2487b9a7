// A cursor over tokens, with the parser's error messages.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/text/template/lexer.h"

namespace assay::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[pos_]; }
  const Token& next_token() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = tokens_[pos_];
    skip();
    return token;
  }
  void skip() {
    if (pos_ + 1 < tokens_.size()) ++pos_;
  }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const { return matches(current(), TokenKind::kOperator, text); }
  bool is_name(std::string_view text) const { return matches(current(), TokenKind::kName, text); }
  bool is_any_name(std::initializer_list<std::string_view> names) const {
    for (const auto name : names) {
      if (is_name(name)) return true;
    }
    return false;
  }
  static bool matches(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool skip_operator(std::string_view text) { return skip_when(is_operator(text)); }
  bool skip_name(std::string_view text) { return skip_when(is_name(text)); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) unexpected("'" + std::string(text) + "'");
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) unexpected("'" + std::string(text) + "'");
  }
  Token expect(TokenKind kind, const char* what) {
    if (!is(kind)) unexpected(what);
    return take();
  }

  [[noreturn]] void error(const std::string& message) const { throw ParseError(current().line, message); }
  [[noreturn]] void unexpected(const std::string& wanted) const {
    error("expected " + wanted + ", got " + describe(current()));
  }
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd: return "the end of the template";
      case TokenKind::kBlockEnd: return "'%}'";
      case TokenKind::kVariableEnd: return "'}}'";
      case TokenKind::kBlockBegin: return "'{%'";
      case TokenKind::kVariableBegin: return "'{{'";
      case TokenKind::kData: return "text";
      default: return "'" + token.text + "'";
    }
  }

 private:
  bool skip_when(bool condition) {
    if (condition) skip();
    return condition;
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

}  // namespace assay::jinja
