#include "server/text/template/access.h"
#include "server/text/template/evaluator.h"
#include "server/text/template/globals.h"
#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {

Value Evaluator::evaluate(const Expr& node, const ScopePtr& scope) {
  runtime_.budget.step();
  const DepthGuard guard(runtime_.budget);
  switch (node.kind) {
    case ExprKind::kConst: return node.value;
    case ExprKind::kName: return lookup(node.name, scope);
    case ExprKind::kTuple: return Value::tuple(evaluate_all(node.args, scope));
    case ExprKind::kList: return Value::list(evaluate_all(node.args, scope));
    case ExprKind::kDict: return dict_literal(node, scope);
    case ExprKind::kUnary: return unary_operation(node, scope);
    case ExprKind::kBinary: return binary_operation(node, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: return logical(node, scope);
    case ExprKind::kCompare: return comparison(node, scope);
    case ExprKind::kConcat: return concat(node, scope);
    case ExprKind::kConditional: return conditional(node, scope);
    case ExprKind::kAttribute: return get_attribute(runtime_, evaluate(*node.args[0], scope), node.name);
    case ExprKind::kItem: return item(node, scope);
    case ExprKind::kSlice: return slice(node, scope);
    case ExprKind::kCall: return call_expression(node, scope, nullptr);
    case ExprKind::kFilter: return filter(node, scope);
    case ExprKind::kTest: return test(node, scope);
    case ExprKind::kNamespaceRef: break;  // only a target
  }
  fail("not an expression");
}

Value Evaluator::lookup(const std::string& name, const ScopePtr& scope) {
  for (const Scope* at = scope.get(); at; at = at->parent.get()) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) return found->second;
  }
  if (const Value* found = context_.as_dict()->find(name)) return *found;
  if (const auto global = global_value(name)) return *global;
  return Value::undefined(quote(name) + " is undefined");
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExprPtr>& nodes, const ScopePtr& scope, size_t first) {
  std::vector<Value> values;
  for (size_t i = first; i < nodes.size(); ++i) values.push_back(evaluate(*nodes[i], scope));
  runtime_.budget.create(static_cast<int64_t>(values.size() * sizeof(Value)));
  return values;
}

Value Evaluator::dict_literal(const Expr& node, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i < node.args.size(); i += 2) {
    Value key = evaluate(*node.args[i], scope);
    items.emplace_back(std::move(key), evaluate(*node.args[i + 1], scope));
  }
  return Value::dict(runtime_.budget, std::move(items));
}

Value Evaluator::logical(const Expr& node, const ScopePtr& scope) {
  Value left = evaluate(*node.args[0], scope);
  const bool decided = truthy(left) == (node.kind == ExprKind::kOr);
  return decided ? left : evaluate(*node.args[1], scope);
}

bool Evaluator::compare_operands(const std::string& op, const Value& left, const Value& right) {
  if (op == "in") return contains(runtime_.budget, right, left);
  if (op == "not in") return !contains(runtime_.budget, right, left);
  return compare(runtime_.budget, op, left, right);
}

Value Evaluator::comparison(const Expr& node, const ScopePtr& scope) {
  Value left = evaluate(*node.args[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.args[i + 1], scope);
    if (!compare_operands(node.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::concat(const Expr& node, const ScopePtr& scope) {
  std::string out;
  for (const auto& part : node.args) append(out, evaluate(*part, scope));
  runtime_.budget.create(static_cast<int64_t>(out.size()));
  return Value::string(std::move(out));
}

Value Evaluator::conditional(const Expr& node, const ScopePtr& scope) {
  if (truthy(evaluate(*node.args[0], scope))) return evaluate(*node.args[1], scope);
  if (node.args[2]) return evaluate(*node.args[2], scope);
  return Value::undefined("the inline if-expression on line " + std::to_string(node.line) +
                          " evaluated to false and no else section was defined.");
}

Value Evaluator::unary_operation(const Expr& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.args[0], scope);
  return node.name == "not" ? Value::boolean(!truthy(value)) : unary(node.name, value);
}

Value Evaluator::binary_operation(const Expr& node, const ScopePtr& scope) {
  const Value left = evaluate(*node.args[0], scope);
  return binary(runtime_.budget, node.name, left, evaluate(*node.args[1], scope));
}

Value Evaluator::item(const Expr& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.args[0], scope);
  return get_item(runtime_, object, evaluate(*node.args[1], scope));
}

Value Evaluator::slice(const Expr& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.args[0], scope);
  const auto bound = [&](size_t i) { return node.args[i] ? evaluate(*node.args[i], scope) : Value(); };
  const Value start = bound(1), stop = bound(2), step = bound(3);
  return get_slice(runtime_, object, start, stop, step);
}

Arguments Evaluator::arguments(const Expr& node, const ScopePtr& scope) {
  Arguments out;
  out.positional = evaluate_all(node.args, scope, 1);
  for (const auto& [name, value] : node.keywords) out.named.emplace_back(name, evaluate(*value, scope));
  if (node.star) {
    for (Value& value : iterate(runtime_, evaluate(*node.star, scope))) out.positional.push_back(std::move(value));
  }
  if (!node.double_star) return out;
  const Value more = evaluate(*node.double_star, scope);
  require_defined(more);
  if (!more.as_dict()) fail("argument after ** must be a mapping, not " + type_name(more));
  for (const auto& [key, value] : more.as_dict()->items) {
    if (!key.as_text()) fail("keywords must be strings");
    out.named.emplace_back(key.as_text()->bytes, value);
  }
  return out;
}

Value Evaluator::call_expression(const Expr& node, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*node.args[0], scope);
  Arguments given = arguments(node, scope);
  if (caller) given.named.emplace_back("caller", *caller);
  return call(runtime_, callee, std::move(given));
}

Value Evaluator::filter(const Expr& node, const ScopePtr& scope) {
  const Value input = evaluate(*node.args[0], scope);
  return call_filter(runtime_, node.name, input, arguments(node, scope));
}

Value Evaluator::test(const Expr& node, const ScopePtr& scope) {
  const Value input = evaluate(*node.args[0], scope);
  return Value::boolean(call_test(runtime_, node.name, input, arguments(node, scope)));
}

}  // namespace assay::jinja
