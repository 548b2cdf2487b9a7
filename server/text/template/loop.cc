#include "server/text/template/loop.h"

#include "server/text/template/methods.h"
#include "server/text/template/operators.h"

namespace assay::jinja {
namespace {

Value loop_cycle(Runtime&, const Value& self, const Arguments& a) { return self.as<Loop>()->cycle(a); }
Value loop_changed(Runtime& runtime, const Value& self, const Arguments& a) {
  return self.as<Loop>()->changed(runtime.budget, a);
}
constexpr Builtin kMethods[] = {{"cycle", "*", 0, loop_cycle}, {"changed", "*", 0, loop_changed}};

}  // namespace

Loop::Loop(Evaluator& evaluator, const Stmt& node, ScopePtr scope, std::vector<Value> items, int depth0)
    : Object(checked_depth(items)),
      evaluator_(evaluator),
      node_(node),
      scope_(std::move(scope)),
      items_(std::move(items)),
      filtered_(node.exprs[1] != nullptr),
      depth0_(depth0) {}

std::optional<Value> Loop::draw() {
  while (next_ < items_.size()) {
    evaluator_.runtime().budget.step();
    Value item = items_[next_++];
    if (!filtered_) return item;
    const auto inner = std::make_shared<Scope>(scope_);
    evaluator_.assign(*node_.target, item, inner);
    if (truthy(evaluator_.evaluate(*node_.exprs[1], inner))) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
  if (!after_) after_ = draw();
  return after_;
}

std::optional<Value> Loop::advance() {
  std::optional<Value> item = after_ ? std::exchange(after_, std::nullopt) : draw();
  if (!item) return item;
  ++index0_;
  before_ = std::exchange(current_, item);
  return item;
}

Int Loop::length() {
  if (!filtered_) return static_cast<Int>(items_.size());
  std::vector<Value> rest;
  while (auto item = draw()) rest.push_back(std::move(*item));
  // From here on the loop is an unfiltered one whose drawn items are kept only as a count.
  const size_t drawn = static_cast<size_t>(index0_ + 1) + (after_ ? 1 : 0);
  items_.assign(drawn, Value());
  next_ = drawn;
  items_.insert(items_.end(), rest.begin(), rest.end());
  filtered_ = false;
  return static_cast<Int>(items_.size());
}

std::optional<Value> Loop::position(const std::string& name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "depth") return Value::integer(depth0_ + 1);
  if (name == "depth0") return Value::integer(depth0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!peek());
  return std::nullopt;
}

std::optional<Value> Loop::attribute(Runtime&, const std::string& name) {
  if (auto value = position(name)) return value;
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
  const Builtin* method = find_in(kMethods, name);
  return method ? std::optional<Value>(bound_method(Value::object(shared_from_this()), *method)) : std::nullopt;
}

Value Loop::cycle(const Arguments& arguments) const {
  const auto& items = arguments.positional;
  if (items.empty()) fail("no items for cycling given");
  return items[static_cast<size_t>(index0_ % static_cast<Int>(items.size()))];
}

Value Loop::changed(Budget& budget, const Arguments& arguments) {
  Value now = Value::tuple(arguments.positional);
  const bool same = last_changed_ && equals(budget, *last_changed_, now);
  last_changed_ = std::move(now);
  return Value::boolean(!same);
}

Value Loop::call(Runtime&, Arguments arguments) {
  if (!node_.recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1) fail("loop() takes one iterable");
  std::string out;
  evaluator_.run_loop(node_, scope_, arguments.positional[0], depth0_ + 1, out);
  return Value::string(std::move(out));
}

std::string Loop::repr(Budget&) const {
  return "<LoopContext " + int_repr(index0_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

}  // namespace assay::jinja
