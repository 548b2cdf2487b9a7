// What builtins and the evaluator share during one render.
//
// Owns: the budget, the objects that may form cycles. Threads: one render each.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/text/template/limits.h"
#include "server/text/template/value.h"

namespace assay::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, std::tm now) : budget(limits), now(now) {}
  ~Runtime() {
    for (const ObjectPtr& object : cyclic_) object->clear();
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Makes an object whose clear() runs at the end of the render.
  template <class T, class... A>
  std::shared_ptr<T> make_cyclic(A&&... arguments) {
    auto made = std::make_shared<T>(std::forward<A>(arguments)...);
    budget.create(sizeof(T));
    cyclic_.push_back(made);
    return made;
  }

  Budget budget;
  const std::tm now;  // local time, for strftime_now

 private:
  std::vector<ObjectPtr> cyclic_;
};

// A filter, test, method or function written in C++. `params`: names of the parameters after `self`, separated by
// spaces, in order; the first `required` have no default. "*": takes any arguments, unbound.
struct Builtin {
  const char* name;
  const char* params;
  int required;
  Value (*function)(Runtime& runtime, const Value& self, const Arguments& arguments);
};

// Binds and calls; wrong arguments throw.
Value invoke(Runtime& runtime, const Builtin& builtin, const Value& self, Arguments arguments);

// self.name as a value that can be called later.
Value bound_method(const Value& self, const Builtin& builtin);

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
// The methods of a value's type; nullptr when it has no such method.
const Builtin* find_method(const Value& self, std::string_view name);

Value call(Runtime& runtime, const Value& callee, Arguments arguments);
Value call_filter(Runtime& runtime, const std::string& name, const Value& input, Arguments arguments);
bool call_test(Runtime& runtime, const std::string& name, const Value& input, Arguments arguments);

}  // namespace assay::jinja
