#include "server/http/json_text.h"

#include "server/service/bounded_json.h"

namespace assay::http {

absl::StatusOr<Json> parse_json(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("the request body is empty; it must be a JSON object");
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    return absl::InvalidArgumentError("the request body begins with a byte order mark; send plain UTF-8");
  }
  absl::StatusOr<Json> json = parse_bounded_json(text);
  if (!json.ok()) return absl::InvalidArgumentError("the request body " + std::string(json.status().message()));
  return json;
}

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace assay::http
