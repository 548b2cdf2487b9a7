// A macro, or the caller of a call block: a body with parameters and the scope it was defined in.
#pragma once

#include <string>

#include "server/text/template/evaluator.h"

namespace assay::jinja {

class Macro : public Object {
 public:
  Macro(Evaluator& evaluator, const MacroDefinition& definition, ScopePtr scope)
      : evaluator_(evaluator), definition_(definition), scope_(std::move(scope)) {}

  std::string type_name() const override { return "Macro"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
  bool is_callable() const override { return true; }
  Value call(Runtime& runtime, Arguments arguments) override;
  void clear() override { scope_.reset(); }

 private:
  void bind(Arguments& arguments, const ScopePtr& inner);
  void bind_parameters(Arguments& arguments, const ScopePtr& inner);
  void bind_missing(const ScopePtr& inner);
  void bind_caller(Arguments& arguments, const ScopePtr& inner);

  Evaluator& evaluator_;
  const MacroDefinition& definition_;
  ScopePtr scope_;
};

}  // namespace assay::jinja
