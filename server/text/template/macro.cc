#include "server/text/template/macro.h"

#include <algorithm>

#include "server/text/template/text.h"

namespace assay::jinja {

std::string Macro::repr(Budget&) const { return "<Macro " + quote(definition_.name) + ">"; }

std::optional<Value> Macro::attribute(Runtime&, const std::string& name) {
  if (name == "name") return Value::string(definition_.name);
  if (name == "catch_kwargs") return Value::boolean(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(definition_.uses_varargs);
  if (name == "caller") return Value::boolean(definition_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& parameter : definition_.parameters) names.push_back(Value::string(parameter));
  return Value::tuple(std::move(names));
}

Value Macro::call(Runtime&, Arguments arguments) {
  const auto inner = std::make_shared<Scope>(scope_);
  bind(arguments, inner);
  std::string out;
  evaluator_.execute(definition_.body, inner, out);
  evaluator_.runtime().budget.create(static_cast<int64_t>(out.size()));
  return Value::string(std::move(out));
}

// Takes the argument of that name out of the list.
static std::optional<Value> take_named(Arguments& arguments, const std::string& name) {
  const auto at = std::find_if(arguments.named.begin(), arguments.named.end(),
                               [&](const auto& pair) { return pair.first == name; });
  if (at == arguments.named.end()) return std::nullopt;
  Value value = std::move(at->second);
  arguments.named.erase(at);
  return value;
}

void Macro::bind_parameters(Arguments& arguments, const ScopePtr& inner) {
  const auto& parameters = definition_.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i < arguments.positional.size()) {
      inner->names[parameters[i]] = arguments.positional[i];
    } else if (auto value = take_named(arguments, parameters[i])) {
      inner->names[parameters[i]] = std::move(*value);
    }
  }
}

// Defaults are evaluated in order, inside the macro: a later one may use earlier parameters.
void Macro::bind_missing(const ScopePtr& inner) {
  const auto& parameters = definition_.parameters;
  const size_t without_default = parameters.size() - definition_.defaults.size();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (inner->names.count(parameters[i])) continue;
    inner->names[parameters[i]] =
        i < without_default ? Value::undefined("parameter " + quote(parameters[i]) + " was not provided")
                            : evaluator_.evaluate(*definition_.defaults[i - without_default], inner);
  }
}

void Macro::bind_caller(Arguments& arguments, const ScopePtr& inner) {
  if (!definition_.uses_caller) return;
  auto caller = take_named(arguments, "caller");
  inner->names["caller"] = caller && !caller->is_none() ? std::move(*caller) : Value::undefined("No caller defined");
}

void Macro::bind(Arguments& arguments, const ScopePtr& inner) {
  bind_parameters(arguments, inner);
  bind_caller(arguments, inner);
  Runtime& runtime = evaluator_.runtime();
  if (definition_.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : arguments.named) rest.emplace_back(Value::string(name), std::move(value));
    inner->names["kwargs"] = Value::dict(runtime.budget, std::move(rest));
  } else if (!arguments.named.empty()) {
    fail("macro " + quote(definition_.name) + " takes no keyword argument " + quote(arguments.named[0].first));
  }
  const size_t count = definition_.parameters.size();
  if (definition_.uses_varargs) {
    const size_t first = std::min(count, arguments.positional.size());
    inner->names["varargs"] =
        Value::tuple({arguments.positional.begin() + static_cast<int64_t>(first), arguments.positional.end()});
  } else if (arguments.positional.size() > count) {
    fail("macro " + quote(definition_.name) + " takes not more than " + std::to_string(count) + " argument(s)");
  }
  bind_missing(inner);
}

}  // namespace assay::jinja
