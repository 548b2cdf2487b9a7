// Visits the expressions and bodies directly below a node.
#pragma once

#include "server/text/template/ast.h"

namespace assay::jinja {

template <class Visit>
void for_each_child(const Expr& node, Visit visit) {
  for (const auto& child : node.args) {
    if (child) visit(*child);
  }
  for (const auto& keyword : node.keywords) visit(*keyword.second);
  if (node.star) visit(*node.star);
  if (node.double_star) visit(*node.double_star);
}

template <class Visit>
void for_each_expression(const Stmt& node, Visit visit) {
  for (const auto& expr : node.exprs) {
    if (expr) visit(*expr);
  }
  for (const auto& filter : node.filters) visit(*filter);
  if (node.macro) {
    for (const auto& value : node.macro->defaults) visit(*value);
  }
}

template <class Visit>
void for_each_body(const Stmt& node, Visit visit) {
  visit(node.body);
  for (const Body& branch : node.branches) visit(branch);
  visit(node.else_body);
  if (node.macro) visit(node.macro->body);
}

}  // namespace assay::jinja
