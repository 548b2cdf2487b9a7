// JSON text in and out, for bodies that come from and go to anyone.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace assay::http {

using Json = nlohmann::ordered_json;

// Whole text must be one JSON value within the bounds of service/bounded_json.h, in UTF-8 without a byte order mark. Of equal
// keys the last one counts. InvalidArgument says where it is wrong.
absl::StatusOr<Json> parse_json(std::string_view text);

// Compact, never fails: bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& value);

}  // namespace assay::http
