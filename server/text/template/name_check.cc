#include "server/text/template/name_check.h"

#include "server/text/template/ast_walk.h"
#include "server/text/template/lexer.h"
#include "server/text/template/runtime.h"

namespace assay::jinja {
namespace {

void check_expression(const Expr& node, bool conditional) {
  if (!conditional && node.kind == ExprKind::kFilter && !find_filter(node.name)) {
    throw ParseError(node.line, "No filter named '" + node.name + "'.");
  }
  if (!conditional && node.kind == ExprKind::kTest && !find_test(node.name)) {
    throw ParseError(node.line, "No test named '" + node.name + "'.");
  }
  const bool inner = conditional || node.kind == ExprKind::kConditional;
  for_each_child(node, [&](const Expr& child) { check_expression(child, inner); });
}

void check_body(const Body& body, bool conditional) {
  for (const auto& statement : body) {
    const bool is_if = statement->kind == StmtKind::kIf;
    for_each_expression(*statement, [&](const Expr& expr) { check_expression(expr, conditional || is_if); });
    // A body with a scope of its own counts as reached whenever its statement is.
    for_each_body(*statement, [&](const Body& inner) { check_body(inner, is_if); });
  }
}

}  // namespace

void check_names(const Body& body) { check_body(body, false); }

}  // namespace assay::jinja
