// JSON of files that may be broken or hostile: no exceptions, no duplicate keys, bounded depth, an object at the top.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace assay {

// InvalidArgument, naming `what`.
absl::StatusOr<nlohmann::json> parse_json_object(std::string_view text, const std::string& what);

}  // namespace assay
