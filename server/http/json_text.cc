#include "server/http/json_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay::http {
namespace {

// The deepest nesting of a text, strings apart. Wrong JSON gives some number; the parser then says what is wrong.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's own prefix.
std::string reason(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace

absl::StatusOr<Json> parse_json(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("the request body is empty; it must be a JSON object");
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    return absl::InvalidArgumentError("the request body begins with a byte order mark; send plain UTF-8");
  }
  if (nesting_depth(text) > kMaxJsonDepth) {
    return absl::InvalidArgumentError(fmt::format("the request body is nested deeper than {} levels", kMaxJsonDepth));
  }
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError("the request body is not valid JSON: " + reason(error.what()));
  }
}

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace assay::http
