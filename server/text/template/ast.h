// The parsed template. Plain data; nodes know how deep they are so that a parse never builds a tree too deep to walk.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/template/value.h"

namespace assay::jinja {

enum class ExprKind {
  kConst,        // value
  kName,         // name
  kTuple,        // args
  kList,         // args
  kDict,         // args: key, value, key, value, ...
  kUnary,        // name: "-", "+", "not"; args[0]
  kBinary,       // name: + - * / // % **; args[0], args[1]
  kAnd,          // args[0], args[1]
  kOr,           // args[0], args[1]
  kCompare,      // args[0] operators[i] args[i + 1] ...
  kConcat,       // args
  kConditional,  // args: condition, then, else (null when there is none)
  kAttribute,    // args[0].name
  kItem,         // args[0][args[1]]
  kSlice,        // args[0][args[1]:args[2]:args[3]], each of the three may be null
  kCall,         // args[0](args[1...], keywords, star, double_star)
  kFilter,       // args[0] | name(args[1...], ...); args[0] is null where the input is a block's text
  kTest,         // args[0] is name(args[1...], ...)
  kNamespaceRef  // name.attribute as a target of set
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  std::string attribute;  // kNamespaceRef
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, double_star;
};

enum class StmtKind {
  kText,    // text
  kOutput,  // exprs
  kFor,     // target in exprs[0] if exprs[1] (may be null): body, else_body
  kIf,      // exprs[i]: branches[i]; else_body
  kSet,     // target = exprs[0]
  kSetBlock,     // target = body | filters
  kMacro,        // macro
  kCallBlock,    // exprs[0] (a kCall) with macro as caller
  kFilterBlock,  // body | filters
  kWith,         // targets = exprs: body
  kTransparent,  // body in a scope of its own ({% generation %})
  kBreak,
  kContinue
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct MacroDefinition {
  std::string name;  // "caller" for call blocks
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr target;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> exprs;
  std::vector<ExprPtr> filters;
  std::vector<Body> branches;
  Body body, else_body;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
  bool uses_loop = false;  // kFor: the body mentions `loop`
};

}  // namespace assay::jinja
