#include "server/text/template/render.h"

#include <nlohmann/json.hpp>

#include "server/text/template/evaluator.h"

namespace assay::jinja {
namespace {

using nlohmann::ordered_json;

Value from_json(Budget& budget, const ordered_json& json, int depth);

Value from_array(Budget& budget, const ordered_json& json, int depth) {
  std::vector<Value> items;
  items.reserve(json.size());
  for (const auto& item : json) items.push_back(from_json(budget, item, depth + 1));
  return Value::list(std::move(items));
}

Value from_object(Budget& budget, const ordered_json& json, int depth) {
  std::vector<std::pair<Value, Value>> items;
  items.reserve(json.size());
  for (const auto& [key, value] : json.items()) {
    items.emplace_back(Value::string(key), from_json(budget, value, depth + 1));
  }
  return Value::dict(budget, std::move(items));
}

Value from_json(Budget& budget, const ordered_json& json, int depth) {
  if (depth >= kMaxValueDepth) checked_depth(kMaxValueDepth);
  budget.step();
  switch (json.type()) {
    case ordered_json::value_t::boolean: return Value::boolean(json.get<bool>());
    case ordered_json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned: return Value::integer(static_cast<Int>(json.get<uint64_t>()));
    case ordered_json::value_t::number_float: return Value::number(json.get<double>());
    case ordered_json::value_t::string: return Value::string(json.get_ref<const std::string&>());
    case ordered_json::value_t::array: return from_array(budget, json, depth);
    case ordered_json::value_t::object: return from_object(budget, json, depth);
    default: return Value();
  }
}

absl::Status to_status(const RenderError& error) {
  switch (error.kind()) {
    case ErrorKind::kRaised: return absl::InvalidArgumentError(error.message());
    case ErrorKind::kLimit: return absl::ResourceExhaustedError(error.message());
    case ErrorKind::kRuntime: break;
  }
  return absl::FailedPreconditionError(error.message());
}

}  // namespace

absl::StatusOr<std::string> render(const Body& body, const ordered_json& variables, const Limits& limits,
                                   const std::tm& now) {
  if (!variables.is_object()) return absl::InvalidArgumentError("chat template variables must be a JSON object");
  Runtime runtime(limits, now);
  try {
    Evaluator evaluator(runtime, from_json(runtime.budget, variables, 0));
    return evaluator.render(body);
  } catch (const RenderError& error) {
    return to_status(error);
  }
}

}  // namespace assay::jinja
