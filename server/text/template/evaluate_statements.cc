#include "server/text/template/access.h"
#include "server/text/template/evaluator.h"
#include "server/text/template/globals.h"
#include "server/text/template/loop.h"
#include "server/text/template/macro.h"
#include "server/text/template/operators.h"

namespace assay::jinja {

std::string Evaluator::render(const Body& body) {
  std::string out;
  execute(body, std::make_shared<Scope>(nullptr), out);
  return out;
}

void Evaluator::append(std::string& out, const Value& value) {
  std::string storage;
  const std::string_view text = text_view(runtime_.budget, value, storage);
  runtime_.budget.scan(text.size());
  out += text;
  runtime_.budget.output(out.size());
}

Flow Evaluator::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  const DepthGuard guard(runtime_.budget);
  for (const auto& statement : body) {
    runtime_.budget.step();
    const Flow flow = execute_one(*statement, scope, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Flow Evaluator::execute_one(const Stmt& node, const ScopePtr& scope, std::string& out) {
  switch (node.kind) {
    case StmtKind::kText:
      out += node.text;
      runtime_.budget.scan(node.text.size());
      runtime_.budget.output(out.size());
      return Flow::kNormal;
    case StmtKind::kOutput:
      output(node, scope, out);
      return Flow::kNormal;
    case StmtKind::kSet:
      assign(*node.target, evaluate(*node.exprs[0], scope), scope);
      return Flow::kNormal;
    case StmtKind::kMacro:
      scope->names[node.macro->name] = make_macro(*node.macro, scope);
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      call_block(node, scope, out);
      return Flow::kNormal;
    case StmtKind::kFor: return run_loop(node, scope, evaluate(*node.exprs[0], scope), 0, out);
    case StmtKind::kIf: return execute_if(node, scope, out);
    case StmtKind::kSetBlock: return set_block(node, scope);
    case StmtKind::kFilterBlock: return filter_block(node, scope, out);
    case StmtKind::kWith: return with(node, scope, out);
    case StmtKind::kTransparent: return execute(node.body, std::make_shared<Scope>(scope), out);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Evaluator::output(const Stmt& node, const ScopePtr& scope, std::string& out) {
  for (const auto& expr : node.exprs) append(out, evaluate(*expr, scope));
}

Flow Evaluator::execute_if(const Stmt& node, const ScopePtr& scope, std::string& out) {
  for (size_t i = 0; i < node.exprs.size(); ++i) {
    if (truthy(evaluate(*node.exprs[i], scope))) return execute(node.branches[i], scope, out);
  }
  return execute(node.else_body, scope, out);
}

Flow Evaluator::run_loop(const Stmt& node, const ScopePtr& scope, const Value& iterable, int depth0, std::string& out) {
  const auto loop = std::make_shared<Loop>(*this, node, scope, iterate(runtime_, iterable), depth0);
  bool completed = false;  // as in Jinja, `else` also runs when no round reached its end
  while (const auto item = loop->advance()) {
    const auto inner = std::make_shared<Scope>(scope);
    assign(*node.target, *item, inner);
    if (node.uses_loop || node.recursive) inner->names["loop"] = Value::object(loop);
    const Flow flow = execute(node.body, inner, out);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNormal;
  }
  return completed ? Flow::kNormal : execute(node.else_body, std::make_shared<Scope>(scope), out);
}

void Evaluator::assign(const Expr& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == ExprKind::kName) {
    scope->names[target.name] = value;
  } else if (target.kind == ExprKind::kNamespaceRef) {
    Namespace* names = lookup(target.name, scope).as<Namespace>();
    if (!names) fail("cannot assign attribute on non-namespace object");
    names->set(target.attribute, value);
  } else {
    require_defined(value);
    const auto items = iterate(runtime_, value);
    const std::string wanted = std::to_string(target.args.size());
    if (items.size() < target.args.size()) {
      fail("not enough values to unpack (expected " + wanted + ", got " + std::to_string(items.size()) + ")");
    }
    if (items.size() > target.args.size()) fail("too many values to unpack (expected " + wanted + ")");
    for (size_t i = 0; i < items.size(); ++i) assign(*target.args[i], items[i], scope);
  }
}

Value Evaluator::apply_filters(const Stmt& node, const ScopePtr& scope, std::string text) {
  runtime_.budget.create(static_cast<int64_t>(text.size()));
  Value value = Value::string(std::move(text));
  for (const auto& filter : node.filters) value = call_filter(runtime_, filter->name, value, arguments(*filter, scope));
  return value;
}

Flow Evaluator::set_block(const Stmt& node, const ScopePtr& scope) {
  std::string text;
  const auto inner = std::make_shared<Scope>(scope);
  const Flow flow = execute(node.body, inner, text);
  if (flow == Flow::kNormal) assign(*node.target, apply_filters(node, inner, std::move(text)), scope);
  return flow;
}

Flow Evaluator::filter_block(const Stmt& node, const ScopePtr& scope, std::string& out) {
  std::string text;
  const auto inner = std::make_shared<Scope>(scope);
  const Flow flow = execute(node.body, inner, text);
  if (flow == Flow::kNormal) append(out, apply_filters(node, inner, std::move(text)));
  return flow;
}

Flow Evaluator::with(const Stmt& node, const ScopePtr& scope, std::string& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < node.targets.size(); ++i) assign(*node.targets[i], evaluate(*node.exprs[i], scope), inner);
  return execute(node.body, inner, out);
}

Value Evaluator::make_macro(const MacroDefinition& definition, const ScopePtr& scope) {
  return Value::object(runtime_.make_cyclic<Macro>(*this, definition, scope));
}

void Evaluator::call_block(const Stmt& node, const ScopePtr& scope, std::string& out) {
  const Value caller = make_macro(*node.macro, scope);
  append(out, call_expression(*node.exprs[0], scope, &caller));
}

}  // namespace assay::jinja
