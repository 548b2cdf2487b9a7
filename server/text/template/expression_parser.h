// Expressions: the language's own grammar, loosest binding first.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "server/text/template/ast.h"
#include "server/text/template/token_stream.h"

namespace assay::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExprPtr expression(bool with_conditional = true);
  // One expression, or a tuple without parentheses. `end_name`: a name that also ends it ("" for none).
  ExprPtr tuple(bool with_conditional = true, std::string_view end_name = {});
  // Names, tuples of names, and, where allowed, namespace attributes.
  ExprPtr assign_target(bool with_namespace, std::string_view end_name = {});
  std::string name_target();
  // `| name(...) | ...`; `inline_start`: the first one has no bar. Each filter's input is null.
  std::vector<ExprPtr> block_filters(bool inline_start);

  // Called for each name that is read.
  std::function<void(const std::string&)> on_name;

 private:
  class Nesting;
  using Rule = ExprPtr (ExpressionParser::*)();

  ExprPtr conditional();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr unary_with_filters() { return unary(true); }
  ExprPtr primary(bool as_target, bool with_namespace);
  ExprPtr name_or_constant(bool as_target, bool with_namespace);
  ExprPtr string_constant();
  ExprPtr parenthesized(bool as_target, bool with_namespace);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr attribute(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice_or_index(ExprPtr node, ExprPtr first);
  ExprPtr filter(ExprPtr input);
  ExprPtr test(ExprPtr input);
  std::string dotted_name(const char* what);
  void call_arguments(Expr& node);
  ExprPtr tuple_of(const std::function<ExprPtr()>& item, std::string_view end_name, bool may_be_empty);
  bool at_tuple_end(std::string_view end_name) const;
  ExprPtr left_associative(Rule operand, ExprKind kind, std::initializer_list<std::string_view> operators, bool names);

  ExprPtr make(ExprKind kind, int line, std::vector<ExprPtr> args = {}, std::string name = {});
  void finish(Expr& node) const;

  TokenStream& stream_;
  int nesting_ = 0;
};

}  // namespace assay::jinja
