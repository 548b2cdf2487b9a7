// Template source -> AST. Throws ParseError with the line. Nesting is bounded, so that no tree is too deep to walk.
#pragma once

#include <string_view>

#include "server/text/template/ast.h"
#include "server/text/template/lexer.h"

namespace assay::jinja {

inline constexpr int kMaxParseDepth = 200;  // recursion of the parser
inline constexpr int kMaxTreeDepth = 400;   // of an expression

Body parse_template(std::string_view source);

}  // namespace assay::jinja
