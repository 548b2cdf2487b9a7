// Template source -> tokens, with white space control applied (trim_blocks, lstrip_blocks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/text/template/value.h"

namespace assay::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;  // data, name, operator, decoded string
  Value number;
  int line;
};

// A parse error; what() says line and reason.
class ParseError : public std::exception {
 public:
  ParseError(int line, const std::string& message)
      : text_("chat template, line " + std::to_string(line) + ": " + message) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

std::vector<Token> tokenize(std::string_view source);  // throws ParseError; ends with kEnd

}  // namespace assay::jinja
