#include "server/text/template/content_parts.h"

#include <algorithm>
#include <set>
#include <string>

#include "server/text/template/ast_walk.h"

namespace assay::jinja {
namespace {

using Names = std::set<std::string>;

// Filters that hand on the parts of a list, and those that go through them.
bool keeps_parts(const std::string& filter) { return filter == "list" || filter == "default" || filter == "d"; }
bool visits_parts(const std::string& filter) {
  static const Names kFilters = {"map", "select", "reject", "selectattr", "rejectattr", "groupby"};
  return kFilters.count(filter) > 0;
}

class ContentSearch {
 public:
  explicit ContentSearch(const Body& body) : body_(body) {}

  bool run() {
    size_t known = 0;
    do {  // names get their meaning from each other: repeat until nothing is new
      known = names_.size() + macros_.size();
      visit(body_);
    } while (known != names_.size() + macros_.size());
    return found_;
  }

 private:
  // The value may be a message's content.
  bool is_content(const Expr& node) const {
    switch (node.kind) {
      case ExprKind::kName: return names_.count(node.name) > 0;
      case ExprKind::kAttribute: return node.name == "content";
      case ExprKind::kItem: {
        const Text* key = node.args[1]->kind == ExprKind::kConst ? node.args[1]->value.as_text() : nullptr;
        return key && key->bytes == "content";
      }
      case ExprKind::kSlice: return is_content(*node.args[0]);
      case ExprKind::kFilter: return node.args[0] && keeps_parts(node.name) && is_content(*node.args[0]);
      case ExprKind::kConditional: return is_content(*node.args[1]) || (node.args[2] && is_content(*node.args[2]));
      case ExprKind::kAnd:
      case ExprKind::kOr: return is_content(*node.args[0]) || is_content(*node.args[1]);
      case ExprKind::kCall: return is_content_get(node);
      default: return false;
    }
  }

  // message.get('content')
  static bool is_content_get(const Expr& call) {
    const Expr& callee = *call.args[0];
    if (callee.kind != ExprKind::kAttribute || callee.name != "get" || call.args.size() < 2) return false;
    const Text* key = call.args[1]->value.as_text();
    return key && key->bytes == "content";
  }

  void visit(const Body& body) {
    for (const auto& statement : body) visit(*statement);
  }

  void visit(const Stmt& node) {
    if (node.kind == StmtKind::kMacro) macros_.insert(node.macro.get());
    if (node.kind == StmtKind::kSet && is_content(*node.exprs[0])) bind(*node.target);
    if (node.kind == StmtKind::kFor && is_content(*node.exprs[0])) found_ = true;
    if (node.kind == StmtKind::kWith) {
      for (size_t i = 0; i < node.targets.size(); ++i) {
        if (is_content(*node.exprs[i])) bind(*node.targets[i]);
      }
    }
    for_each_expression(node, [&](const Expr& expr) { visit(expr); });
    for_each_body(node, [&](const Body& body) { visit(body); });
  }

  void visit(const Expr& node) {
    if (node.kind == ExprKind::kFilter && node.args[0] && visits_parts(node.name) && is_content(*node.args[0]))
      found_ = true;
    if (node.kind == ExprKind::kCall && node.args[0]->kind == ExprKind::kName) bind_parameters(node);
    for_each_child(node, [&](const Expr& child) { visit(child); });
  }

  void bind(const Expr& target) {
    if (target.kind == ExprKind::kName) names_.insert(target.name);
  }

  void bind_parameters(const Expr& call) {
    for (const MacroDefinition* macro : macros_) {
      if (macro->name != call.args[0]->name) continue;
      for (size_t i = 0; i < macro->parameters.size() && i + 1 < call.args.size(); ++i) {
        if (is_content(*call.args[i + 1])) names_.insert(macro->parameters[i]);
      }
      for (const auto& [name, value] : call.keywords) {
        if (is_content(*value)) names_.insert(name);
      }
    }
  }

  const Body& body_;
  Names names_;
  std::set<const MacroDefinition*> macros_;
  bool found_ = false;
};

}  // namespace

bool iterates_content(const Body& body) { return ContentSearch(body).run(); }

}  // namespace assay::jinja
