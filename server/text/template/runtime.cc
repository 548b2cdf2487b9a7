#include "server/text/template/runtime.h"

#include <algorithm>

#include "server/text/template/operators.h"

namespace assay::jinja {
namespace {

class BoundMethod : public Object {
 public:
  BoundMethod(const Value& self, const Builtin& builtin)
      : Object(checked_depth(self.depth())), self_(self), builtin_(builtin) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments arguments) override {
    return invoke(runtime, builtin_, self_, std::move(arguments));
  }

 private:
  Value self_;
  const Builtin& builtin_;
};

std::vector<std::string_view> split_names(std::string_view names) {
  std::vector<std::string_view> out;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    out.push_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return out;
}

void bind_named(const Builtin& builtin, const std::vector<std::string_view>& names, Arguments& arguments) {
  for (auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) fail(std::string(builtin.name) + "() got an unexpected keyword argument '" + name + "'");
    auto& slot = arguments.bound[static_cast<size_t>(at - names.begin())];
    if (slot) fail(std::string(builtin.name) + "() got multiple values for argument '" + name + "'");
    slot = std::move(value);
  }
}

void bind(const Builtin& builtin, Arguments& arguments) {
  const auto names = split_names(builtin.params);
  if (arguments.positional.size() > names.size()) {
    fail(std::string(builtin.name) + "() takes at most " + std::to_string(names.size()) + " arguments (" +
         std::to_string(arguments.positional.size()) + " given)");
  }
  arguments.bound.assign(names.size(), std::nullopt);
  for (size_t i = 0; i < arguments.positional.size(); ++i) arguments.bound[i] = std::move(arguments.positional[i]);
  bind_named(builtin, names, arguments);
  for (int i = 0; i < builtin.required; ++i) {
    if (!arguments.has(i))
      fail(std::string(builtin.name) + "() missing required argument: '" + std::string(names[i]) + "'");
  }
}

}  // namespace

Value invoke(Runtime& runtime, const Builtin& builtin, const Value& self, Arguments arguments) {
  runtime.budget.step();
  if (std::string_view(builtin.params) != "*") bind(builtin, arguments);
  return builtin.function(runtime, self, arguments);
}

Value bound_method(const Value& self, const Builtin& builtin) {
  return Value::object(std::make_shared<BoundMethod>(self, builtin));
}

Value call(Runtime& runtime, const Value& callee, Arguments arguments) {
  if (const Undefined* undefined = callee.as_undefined()) fail(undefined->message);
  Object* object = callee.as_object();
  if (!object) fail("'" + type_name(callee) + "' object is not callable");
  DepthGuard guard(runtime.budget);
  return object->call(runtime, std::move(arguments));
}

Value call_filter(Runtime& runtime, const std::string& name, const Value& input, Arguments arguments) {
  const Builtin* filter = find_filter(name);
  if (!filter) fail("No filter named '" + name + "'.");
  DepthGuard guard(runtime.budget);
  return invoke(runtime, *filter, input, std::move(arguments));
}

bool call_test(Runtime& runtime, const std::string& name, const Value& input, Arguments arguments) {
  const Builtin* test = find_test(name);
  if (!test) fail("No test named '" + name + "'.");
  return truthy(invoke(runtime, *test, input, std::move(arguments)));
}

}  // namespace assay::jinja
