// Walks the AST: one Evaluator per render.
//
// Threads: one. Errors: RenderError. The AST must outlive the evaluator.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "server/text/template/ast.h"
#include "server/text/template/runtime.h"

namespace assay::jinja {

// Names of one block; lookups go on to the parent.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent) : parent(std::move(parent)) {}
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string_view, Value> names;
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { kNormal, kBreak, kContinue };

class Evaluator {
 public:
  // `context`: a dict, the variables of the template.
  Evaluator(Runtime& runtime, Value context) : runtime_(runtime), context_(std::move(context)) {}

  std::string render(const Body& body);

  // For macros and loops.
  Value evaluate(const Expr& node, const ScopePtr& scope);
  Flow execute(const Body& body, const ScopePtr& scope, std::string& out);
  Flow run_loop(const Stmt& node, const ScopePtr& scope, const Value& iterable, int depth0, std::string& out);
  void assign(const Expr& target, const Value& value, const ScopePtr& scope);
  Runtime& runtime() { return runtime_; }

 private:
  // Expressions.
  Value lookup(const std::string& name, const ScopePtr& scope);
  Value logical(const Expr& node, const ScopePtr& scope);
  Value comparison(const Expr& node, const ScopePtr& scope);
  bool compare_operands(const std::string& op, const Value& left, const Value& right);
  Value concat(const Expr& node, const ScopePtr& scope);
  Value conditional(const Expr& node, const ScopePtr& scope);
  Value unary_operation(const Expr& node, const ScopePtr& scope);
  Value binary_operation(const Expr& node, const ScopePtr& scope);
  Value item(const Expr& node, const ScopePtr& scope);
  Value slice(const Expr& node, const ScopePtr& scope);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& nodes, const ScopePtr& scope, size_t first = 0);
  Value dict_literal(const Expr& node, const ScopePtr& scope);
  Value call_expression(const Expr& node, const ScopePtr& scope, const Value* caller);
  Value filter(const Expr& node, const ScopePtr& scope);
  Value test(const Expr& node, const ScopePtr& scope);
  Arguments arguments(const Expr& node, const ScopePtr& scope);

  // Statements.
  Flow execute_one(const Stmt& node, const ScopePtr& scope, std::string& out);
  Flow execute_if(const Stmt& node, const ScopePtr& scope, std::string& out);
  Flow set_block(const Stmt& node, const ScopePtr& scope);
  Flow filter_block(const Stmt& node, const ScopePtr& scope, std::string& out);
  Flow with(const Stmt& node, const ScopePtr& scope, std::string& out);
  void output(const Stmt& node, const ScopePtr& scope, std::string& out);
  void call_block(const Stmt& node, const ScopePtr& scope, std::string& out);
  Value apply_filters(const Stmt& node, const ScopePtr& scope, std::string text);
  Value make_macro(const MacroDefinition& definition, const ScopePtr& scope);
  void append(std::string& out, const Value& value);

  Runtime& runtime_;
  Value context_;
};

}  // namespace assay::jinja
