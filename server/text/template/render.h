// A parsed template and variables -> text. Every error of the template becomes a status.
#pragma once

#include <ctime>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "server/text/template/ast.h"

namespace assay::jinja {

// `now`: local time for strftime_now. Errors as in chat_template.h.
absl::StatusOr<std::string> render(const Body& body, const nlohmann::ordered_json& variables, const Limits& limits,
                                   const std::tm& now);

}  // namespace assay::jinja
