// Functions and objects every template finds by name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "server/text/template/runtime.h"

namespace assay::jinja {

// namespace(...): the one thing that `set` may change from an inner scope.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
  void clear() override { attributes_.clear(); }
  void set(const std::string& name, Value value) { attributes_[name] = std::move(value); }

 private:
  std::map<std::string, Value> attributes_;
};

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now; nothing for other names.
std::optional<Value> global_value(std::string_view name);

}  // namespace assay::jinja
