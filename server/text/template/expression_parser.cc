#include "server/text/template/expression_parser.h"

#include <algorithm>

#include "server/text/template/parser.h"

namespace assay::jinja {

// Bounds the recursion of the parser itself.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxParseDepth) {
      --parser_.nesting_;
      parser_.stream_.error("expression is nested too deep");
    }
  }
  ~Nesting() { --parser_.nesting_; }

 private:
  ExpressionParser& parser_;
};

void ExpressionParser::finish(Expr& node) const {
  int deepest = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  for (const auto& child : node.args) see(child);
  for (const auto& keyword : node.keywords) see(keyword.second);
  see(node.star);
  see(node.double_star);
  node.depth = deepest + 1;
  if (node.depth > kMaxTreeDepth) throw ParseError(node.line, "expression is nested too deep");
}

ExprPtr ExpressionParser::make(ExprKind kind, int line, std::vector<ExprPtr> args, std::string name) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->args = std::move(args);
  node->name = std::move(name);
  finish(*node);
  return node;
}

namespace {

std::vector<ExprPtr> list_of(ExprPtr a) {
  std::vector<ExprPtr> items;
  items.push_back(std::move(a));
  return items;
}

std::vector<ExprPtr> list_of(ExprPtr a, ExprPtr b) {
  auto items = list_of(std::move(a));
  items.push_back(std::move(b));
  return items;
}

}  // namespace

ExprPtr ExpressionParser::expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? conditional() : logical_or();
}

ExprPtr ExpressionParser::conditional() {
  int line = stream_.current().line;
  ExprPtr then = logical_or();
  while (stream_.skip_name("if")) {
    ExprPtr condition = logical_or();
    ExprPtr otherwise = stream_.skip_name("else") ? expression() : nullptr;
    auto args = list_of(std::move(condition), std::move(then));
    args.push_back(std::move(otherwise));
    then = make(ExprKind::kConditional, line, std::move(args));
    line = stream_.current().line;
  }
  return then;
}

// operand (operator operand)*, where the operators are names or symbols.
ExprPtr ExpressionParser::left_associative(Rule operand, ExprKind kind,
                                           std::initializer_list<std::string_view> operators, bool names) {
  int line = stream_.current().line;
  ExprPtr left = (this->*operand)();
  for (;;) {
    const auto found = std::find_if(operators.begin(), operators.end(), [&](std::string_view text) {
      return names ? stream_.is_name(text) : stream_.is_operator(text);
    });
    if (found == operators.end()) return left;
    stream_.skip();
    ExprPtr right = (this->*operand)();
    left = make(kind, line, list_of(std::move(left), std::move(right)), std::string(*found));
    line = stream_.current().line;
  }
}

ExprPtr ExpressionParser::logical_or() {
  return left_associative(&ExpressionParser::logical_and, ExprKind::kOr, {"or"}, true);
}

ExprPtr ExpressionParser::logical_and() {
  return left_associative(&ExpressionParser::logical_not, ExprKind::kAnd, {"and"}, true);
}

ExprPtr ExpressionParser::logical_not() {
  if (!stream_.is_name("not")) return compare();
  const Nesting nesting(*this);
  const int line = stream_.take().line;
  return make(ExprKind::kUnary, line, list_of(logical_not()), "not");
}

ExprPtr ExpressionParser::compare() {
  const int line = stream_.current().line;
  auto args = list_of(sum());
  std::vector<std::string> operators;
  for (;;) {
    if (stream_.is_operator("==") || stream_.is_operator("!=") || stream_.is_operator("<") ||
        stream_.is_operator("<=") || stream_.is_operator(">") || stream_.is_operator(">=")) {
      operators.push_back(stream_.take().text);
    } else if (stream_.skip_name("in")) {
      operators.push_back("in");
    } else if (stream_.is_name("not") && TokenStream::matches(stream_.next_token(), TokenKind::kName, "in")) {
      stream_.skip();
      stream_.skip();
      operators.push_back("not in");
    } else {
      break;
    }
    args.push_back(sum());
  }
  if (operators.empty()) return std::move(args[0]);
  ExprPtr node = make(ExprKind::kCompare, line, std::move(args));
  node->operators = std::move(operators);
  return node;
}

ExprPtr ExpressionParser::sum() {
  return left_associative(&ExpressionParser::concat, ExprKind::kBinary, {"+", "-"}, false);
}

ExprPtr ExpressionParser::concat() {
  const int line = stream_.current().line;
  auto args = list_of(product());
  while (stream_.skip_operator("~")) args.push_back(product());
  if (args.size() == 1) return std::move(args[0]);
  return make(ExprKind::kConcat, line, std::move(args));
}

ExprPtr ExpressionParser::product() {
  return left_associative(&ExpressionParser::power, ExprKind::kBinary, {"*", "/", "//", "%"}, false);
}

ExprPtr ExpressionParser::power() {
  return left_associative(&ExpressionParser::unary_with_filters, ExprKind::kBinary, {"**"}, false);
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = stream_.current().line;
  ExprPtr node;
  if (stream_.is_operator("-") || stream_.is_operator("+")) {
    std::string sign = stream_.take().text;
    node = make(ExprKind::kUnary, line, list_of(unary(false)), std::move(sign));
  } else {
    node = primary(false, false);
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary(bool as_target, bool with_namespace) {
  const Token& token = stream_.current();
  switch (token.kind) {
    case TokenKind::kName:
      return name_or_constant(as_target, with_namespace);
    case TokenKind::kString:
      return string_constant();
    case TokenKind::kNumber: {
      ExprPtr node = make(ExprKind::kConst, token.line);
      node->value = token.number;
      stream_.skip();
      return node;
    }
    default:
      break;
  }
  if (stream_.is_operator("(")) return parenthesized(as_target, with_namespace);
  if (stream_.is_operator("[")) return list();
  if (stream_.is_operator("{")) return dict();
  stream_.error("unexpected " + TokenStream::describe(token));
}

ExprPtr ExpressionParser::name_or_constant(bool as_target, bool with_namespace) {
  const Token token = stream_.take();
  if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
    ExprPtr node = make(ExprKind::kConst, token.line);
    node->value = Value::boolean(token.text == "true" || token.text == "True");
    return node;
  }
  if (token.text == "none" || token.text == "None") return make(ExprKind::kConst, token.line);
  if (with_namespace && stream_.skip_operator(".")) {
    if (on_name) on_name(token.text);
    ExprPtr node = make(ExprKind::kNamespaceRef, token.line, {}, token.text);
    node->attribute = stream_.expect(TokenKind::kName, "a name").text;
    return node;
  }
  if (!as_target && on_name) on_name(token.text);
  return make(ExprKind::kName, token.line, {}, token.text);
}

ExprPtr ExpressionParser::string_constant() {
  ExprPtr node = make(ExprKind::kConst, stream_.current().line);
  std::string text;
  while (stream_.is(TokenKind::kString)) text += stream_.take().text;
  node->value = Value::string(std::move(text));
  return node;
}

ExprPtr ExpressionParser::parenthesized(bool as_target, bool with_namespace) {
  const Nesting nesting(*this);
  stream_.skip();
  ExprPtr node = as_target ? tuple_of([&] { return primary(true, with_namespace); }, {}, true)
                           : tuple_of([&] { return expression(); }, {}, true);
  stream_.expect_operator(")");
  return node;
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return stream_.is(TokenKind::kVariableEnd) || stream_.is(TokenKind::kBlockEnd) || stream_.is_operator(")") ||
         (!end_name.empty() && stream_.is_name(end_name));
}

ExprPtr ExpressionParser::tuple_of(const std::function<ExprPtr()>& item, std::string_view end_name, bool may_be_empty) {
  const int line = stream_.current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) stream_.expect_operator(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(item());
    if (!stream_.is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !may_be_empty) stream_.unexpected("an expression");
  return make(ExprKind::kTuple, line, std::move(items));
}

ExprPtr ExpressionParser::tuple(bool with_conditional, std::string_view end_name) {
  return tuple_of([&] { return expression(with_conditional); }, end_name, false);
}

namespace {

bool is_assignable(const Expr& target) {
  if (target.kind == ExprKind::kName || target.kind == ExprKind::kNamespaceRef) return true;
  return target.kind == ExprKind::kTuple && std::all_of(target.args.begin(), target.args.end(),
                                                        [](const ExprPtr& item) { return is_assignable(*item); });
}

}  // namespace

ExprPtr ExpressionParser::assign_target(bool with_namespace, std::string_view end_name) {
  ExprPtr target = tuple_of([&] { return primary(true, with_namespace); }, end_name, false);
  if (!is_assignable(*target)) throw ParseError(target->line, "can't assign to this expression");
  return target;
}

std::string ExpressionParser::name_target() { return stream_.expect(TokenKind::kName, "a name").text; }

ExprPtr ExpressionParser::list() {
  const Nesting nesting(*this);
  const int line = stream_.take().line;
  std::vector<ExprPtr> items;
  while (!stream_.is_operator("]")) {
    if (!items.empty()) stream_.expect_operator(",");
    if (stream_.is_operator("]")) break;
    items.push_back(expression());
  }
  stream_.expect_operator("]");
  return make(ExprKind::kList, line, std::move(items));
}

ExprPtr ExpressionParser::dict() {
  const Nesting nesting(*this);
  const int line = stream_.take().line;
  std::vector<ExprPtr> items;
  while (!stream_.is_operator("}")) {
    if (!items.empty()) stream_.expect_operator(",");
    if (stream_.is_operator("}")) break;
    items.push_back(expression());
    stream_.expect_operator(":");
    items.push_back(expression());
  }
  stream_.expect_operator("}");
  return make(ExprKind::kDict, line, std::move(items));
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    if (stream_.is_operator(".")) {
      node = attribute(std::move(node));
    } else if (stream_.is_operator("[")) {
      node = subscript(std::move(node));
    } else if (stream_.is_operator("(")) {
      auto call = make(ExprKind::kCall, stream_.current().line, list_of(std::move(node)));
      call_arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (stream_.skip_operator("|")) {
      node = filter(std::move(node));
    } else if (stream_.skip_name("is")) {
      node = test(std::move(node));
    } else if (stream_.is_operator("(")) {
      auto call = make(ExprKind::kCall, stream_.current().line, list_of(std::move(node)));
      call_arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::attribute(ExprPtr node) {
  const int line = stream_.take().line;
  const Token token = stream_.take();
  if (token.kind == TokenKind::kName) return make(ExprKind::kAttribute, line, list_of(std::move(node)), token.text);
  if (token.kind != TokenKind::kNumber || !token.number.as_int())
    throw ParseError(token.line, "expected name or number");
  ExprPtr index = make(ExprKind::kConst, token.line);
  index->value = token.number;
  return make(ExprKind::kItem, line, list_of(std::move(node), std::move(index)));
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const int line = stream_.take().line;
  if (stream_.is_operator(":")) return slice_or_index(std::move(node), nullptr);
  std::vector<ExprPtr> items;
  while (!stream_.is_operator("]")) {
    if (!items.empty()) stream_.expect_operator(",");
    items.push_back(expression());
    if (items.size() == 1 && stream_.is_operator(":")) return slice_or_index(std::move(node), std::move(items[0]));
  }
  stream_.expect_operator("]");
  ExprPtr index = items.size() == 1 ? std::move(items[0]) : make(ExprKind::kTuple, line, std::move(items));
  return make(ExprKind::kItem, line, list_of(std::move(node), std::move(index)));
}

// At the first colon of node[first:stop:step].
ExprPtr ExpressionParser::slice_or_index(ExprPtr node, ExprPtr first) {
  const int line = stream_.take().line;
  ExprPtr stop, step;
  if (!stream_.is_operator(":") && !stream_.is_operator("]")) stop = expression();
  if (stream_.skip_operator(":") && !stream_.is_operator("]")) step = expression();
  stream_.expect_operator("]");
  auto args = list_of(std::move(node), std::move(first));
  args.push_back(std::move(stop));
  args.push_back(std::move(step));
  return make(ExprKind::kSlice, line, std::move(args));
}

void ExpressionParser::call_arguments(Expr& node) {
  const Nesting nesting(*this);
  const auto ensure = [&](bool ok) {
    if (!ok) stream_.error("invalid syntax for function call expression");
  };
  stream_.expect_operator("(");
  bool require_comma = false;
  while (!stream_.is_operator(")")) {
    if (require_comma) {
      stream_.expect_operator(",");
      if (stream_.is_operator(")")) break;
    }
    require_comma = true;
    if (stream_.skip_operator("*")) {
      ensure(!node.star && !node.double_star);
      node.star = expression();
    } else if (stream_.skip_operator("**")) {
      ensure(!node.double_star);
      node.double_star = expression();
    } else if (stream_.is(TokenKind::kName) && TokenStream::matches(stream_.next_token(), TokenKind::kOperator, "=")) {
      ensure(!node.double_star);
      std::string key = stream_.take().text;
      stream_.skip();
      node.keywords.emplace_back(std::move(key), expression());
    } else {
      ensure(!node.star && !node.double_star && node.keywords.empty());
      node.args.push_back(expression());
    }
  }
  stream_.expect_operator(")");
  finish(node);
}

std::string ExpressionParser::dotted_name(const char* what) {
  std::string name = stream_.expect(TokenKind::kName, what).text;
  while (stream_.skip_operator(".")) name += "." + stream_.expect(TokenKind::kName, "a name").text;
  return name;
}

ExprPtr ExpressionParser::filter(ExprPtr input) {
  const int line = stream_.current().line;
  std::string name = dotted_name("the name of a filter");
  ExprPtr node = make(ExprKind::kFilter, line, list_of(std::move(input)), std::move(name));
  if (stream_.is_operator("(")) call_arguments(*node);
  return node;
}

std::vector<ExprPtr> ExpressionParser::block_filters(bool inline_start) {
  std::vector<ExprPtr> filters;
  if (inline_start) filters.push_back(filter(nullptr));
  while (stream_.skip_operator("|")) filters.push_back(filter(nullptr));
  return filters;
}

ExprPtr ExpressionParser::test(ExprPtr input) {
  const int line = stream_.current().line;
  const bool negated = stream_.skip_name("not");
  std::string name = dotted_name("the name of a test");
  ExprPtr node = make(ExprKind::kTest, line, list_of(std::move(input)), std::move(name));
  const bool takes_argument = stream_.is(TokenKind::kName) || stream_.is(TokenKind::kString) ||
                              stream_.is(TokenKind::kNumber) || stream_.is_operator("[") || stream_.is_operator("{");
  if (stream_.is_operator("(")) {
    call_arguments(*node);
  } else if (takes_argument && !stream_.is_any_name({"else", "or", "and"})) {
    if (stream_.is_name("is")) stream_.error("You cannot chain multiple tests with is");
    node->args.push_back(postfix(primary(false, false)));
    finish(*node);
  }
  return negated ? make(ExprKind::kUnary, line, list_of(std::move(node)), "not") : std::move(node);
}

}  // namespace assay::jinja
