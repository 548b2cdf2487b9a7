// The `loop` variable, and the iteration behind it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/text/template/evaluator.h"

namespace assay::jinja {

// Items are drawn one by one, so that a loop's `if` sees what the body has changed; loop.last and loop.nextitem draw
// one ahead, loop.length all of them.
class Loop : public Object {
 public:
  Loop(Evaluator& evaluator, const Stmt& node, ScopePtr scope, std::vector<Value> items, int depth0);

  std::optional<Value> advance();

  std::string type_name() const override { return "LoopContext"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments arguments) override;  // recursion
  Value cycle(const Arguments& arguments) const;
  Value changed(Budget& budget, const Arguments& arguments);

 private:
  std::optional<Value> draw();
  const std::optional<Value>& peek();
  Int length();
  std::optional<Value> position(const std::string& name);

  Evaluator& evaluator_;
  const Stmt& node_;
  ScopePtr scope_;
  std::vector<Value> items_;
  size_t next_ = 0;
  bool filtered_;  // items_[next_...] still have to pass the loop's `if`
  int depth0_;
  Int index0_ = -1;
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
};

}  // namespace assay::jinja
