#include "server/text/template/parser.h"

#include <algorithm>

#include "server/text/template/expression_parser.h"
#include "server/text/template/name_check.h"

namespace assay::jinja {
namespace {

using EndNames = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {
    expressions_.on_name = [this](const std::string& name) { see_name(name); };
  }

  Body run() { return statements_until({}); }

 private:
  // Names that a macro's or a loop's body mentions decide what is passed to it.
  void see_name(const std::string& name) {
    for (MacroDefinition* macro : macros_) {
      if (name == "varargs") macro->uses_varargs = true;
      if (name == "kwargs") macro->uses_kwargs = true;
      if (name == "caller") macro->uses_caller = true;
    }
    if (name == "loop") {
      for (Stmt* loop : loops_) loop->uses_loop = true;
    }
  }

  std::unique_ptr<Stmt> make(StmtKind kind) const {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->line = stream_.current().line;
    return node;
  }

  // Until `{% NAME` with one of the names (left as the current token), or, without names, the end of the template.
  Body statements_until(EndNames names) {
    if (++nesting_ > kMaxParseDepth) stream_.error("statements are nested too deep");
    Body body;
    for (;;) {
      if (stream_.is(TokenKind::kEnd)) {
        if (names.size() != 0) end_of_template(names);
        break;
      }
      if (stream_.is(TokenKind::kBlockBegin)) {
        stream_.skip();
        if (stream_.is_any_name(names)) break;
        body.push_back(statement(names));
        stream_.expect(TokenKind::kBlockEnd, "'%}'");
      } else {
        body.push_back(output());
      }
    }
    --nesting_;
    return body;
  }

  [[noreturn]] void end_of_template(EndNames names) const {
    std::string wanted;
    for (const auto name : names) wanted += (wanted.empty() ? "'" : " or '") + std::string(name) + "'";
    throw ParseError(open_tags_.back().second, "unexpected end of the template in '" + open_tags_.back().first +
                                                   "'; looking for " + wanted);
  }

  // The body of a block statement: after its tag up to `{% end %}`'s name.
  Body block(EndNames names) {
    stream_.skip_operator(":");
    stream_.expect(TokenKind::kBlockEnd, "'%}'");
    return statements_until(names);
  }
  Body block_to(std::string_view end_name) {
    Body body = block({end_name});
    stream_.skip();
    return body;
  }

  std::unique_ptr<Stmt> output() {
    if (stream_.is(TokenKind::kData)) {
      auto node = make(StmtKind::kText);
      node->text = stream_.take().text;
      return node;
    }
    auto node = make(StmtKind::kOutput);
    stream_.expect(TokenKind::kVariableBegin, "'{{'");
    node->exprs.push_back(expressions_.tuple());
    stream_.expect(TokenKind::kVariableEnd, "'}}'");
    return node;
  }

  std::unique_ptr<Stmt> statement(EndNames wanted) {
    if (!stream_.is(TokenKind::kName)) stream_.unexpected("the name of a tag");
    using Rule = std::unique_ptr<Stmt> (Parser::*)();
    static const std::pair<const char*, Rule> kRules[] = {
        {"set", &Parser::set},           {"for", &Parser::for_loop},         {"if", &Parser::if_chain},
        {"macro", &Parser::macro},       {"call", &Parser::call_block},      {"filter", &Parser::filter_block},
        {"with", &Parser::with},         {"generation", &Parser::generation}, {"break", &Parser::loop_control},
        {"continue", &Parser::loop_control}, {"print", &Parser::print}};
    const std::string name = stream_.current().text;
    for (const auto& [tag, rule] : kRules) {
      if (name != tag) continue;
      open_tags_.emplace_back(name, stream_.current().line);
      auto node = (this->*rule)();
      open_tags_.pop_back();
      return node;
    }
    unknown_tag(name, wanted);
  }

  [[noreturn]] void unknown_tag(const std::string& name, EndNames wanted) const {
    for (const char* tag : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (name == tag) stream_.error("'" + name + "' is not supported: a chat template is one file of its own");
    }
    std::string message = "encountered unknown tag '" + name + "'";
    if (wanted.size() != 0) {
      message += "; '" + open_tags_.back().first + "' of line " + std::to_string(open_tags_.back().second) +
                 " is still open";
    }
    stream_.error(message);
  }

  std::unique_ptr<Stmt> set() {
    auto node = make(StmtKind::kSet);
    stream_.skip();
    node->target = expressions_.assign_target(true);
    if (stream_.skip_operator("=")) {
      node->exprs.push_back(expressions_.tuple());
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    node->filters = expressions_.block_filters(false);
    node->body = block_to("endset");
    return node;
  }

  std::unique_ptr<Stmt> for_loop() {
    auto node = make(StmtKind::kFor);
    stream_.skip();
    node->target = expressions_.assign_target(false, "in");
    stream_.expect_name("in");
    node->exprs.push_back(expressions_.tuple(false, "recursive"));
    node->exprs.push_back(stream_.skip_name("if") ? expressions_.expression() : nullptr);
    node->recursive = stream_.skip_name("recursive");
    loops_.push_back(node.get());
    ++loop_depth_;
    node->body = block({"endfor", "else"});
    --loop_depth_;
    loops_.pop_back();
    if (stream_.take().text == "else") node->else_body = block_to("endfor");
    return node;
  }

  std::unique_ptr<Stmt> loop_control() {
    auto node = make(stream_.is_name("break") ? StmtKind::kBreak : StmtKind::kContinue);
    if (loop_depth_ == 0) stream_.error("'" + stream_.current().text + "' outside of a loop");
    stream_.skip();
    return node;
  }

  std::unique_ptr<Stmt> if_chain() {
    auto node = make(StmtKind::kIf);
    stream_.skip();
    for (;;) {
      node->exprs.push_back(expressions_.tuple(false));
      node->branches.push_back(block({"elif", "else", "endif"}));
      const std::string end = stream_.take().text;
      if (end == "elif") continue;
      if (end == "else") node->else_body = block_to("endif");
      return node;
    }
  }

  void signature(MacroDefinition& macro) {
    stream_.expect_operator("(");
    while (!stream_.is_operator(")")) {
      if (!macro.parameters.empty()) stream_.expect_operator(",");
      macro.parameters.push_back(expressions_.name_target());
      if (stream_.skip_operator("=")) {
        macro.defaults.push_back(expressions_.expression());
      } else if (!macro.defaults.empty()) {
        stream_.error("non-default argument follows default argument");
      }
    }
    stream_.expect_operator(")");
  }

  // A body that cannot see the loops around it.
  Body detached_block(std::string_view end_name) {
    const int loop_depth = std::exchange(loop_depth_, 0);
    Body body = block_to(end_name);
    loop_depth_ = loop_depth;
    return body;
  }

  void macro_body(MacroDefinition& macro, std::string_view end_name) {
    macros_.push_back(&macro);
    macro.body = detached_block(end_name);
    macros_.pop_back();
    const auto& names = macro.parameters;
    if (std::find(names.begin(), names.end(), "caller") != names.end()) macro.uses_caller = false;
  }

  std::unique_ptr<Stmt> macro() {
    auto node = make(StmtKind::kMacro);
    stream_.skip();
    node->macro = std::make_unique<MacroDefinition>();
    node->macro->name = expressions_.name_target();
    signature(*node->macro);
    macro_body(*node->macro, "endmacro");
    return node;
  }

  std::unique_ptr<Stmt> call_block() {
    auto node = make(StmtKind::kCallBlock);
    stream_.skip();
    node->macro = std::make_unique<MacroDefinition>();
    node->macro->name = "caller";
    if (stream_.is_operator("(")) signature(*node->macro);
    node->exprs.push_back(expressions_.expression());
    if (node->exprs[0]->kind != ExprKind::kCall) throw ParseError(node->line, "expected call");
    macro_body(*node->macro, "endcall");
    return node;
  }

  std::unique_ptr<Stmt> filter_block() {
    auto node = make(StmtKind::kFilterBlock);
    stream_.skip();
    node->filters = expressions_.block_filters(true);
    node->body = block_to("endfilter");
    return node;
  }

  std::unique_ptr<Stmt> with() {
    auto node = make(StmtKind::kWith);
    stream_.skip();
    while (!stream_.is(TokenKind::kBlockEnd) && !stream_.is_operator(":")) {
      if (!node->targets.empty()) stream_.expect_operator(",");
      node->targets.push_back(expressions_.assign_target(false));
      stream_.expect_operator("=");
      node->exprs.push_back(expressions_.expression());
    }
    node->body = block_to("endwith");
    return node;
  }

  std::unique_ptr<Stmt> generation() {
    auto node = make(StmtKind::kTransparent);
    stream_.skip();
    node->body = detached_block("endgeneration");
    return node;
  }

  std::unique_ptr<Stmt> print() {
    auto node = make(StmtKind::kOutput);
    stream_.skip();
    while (!stream_.is(TokenKind::kBlockEnd)) {
      if (!node->exprs.empty()) stream_.expect_operator(",");
      node->exprs.push_back(expressions_.expression());
    }
    return node;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  std::vector<MacroDefinition*> macros_;
  std::vector<Stmt*> loops_;
  std::vector<std::pair<std::string, int>> open_tags_;
  int nesting_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  Body body = Parser(tokenize(source)).run();
  check_names(body);
  return body;
}

}  // namespace assay::jinja
