// Rewrites a regular expression of the tokenizer.json format (Oniguruma, Ruby syntax) as one that PCRE2 reads the same
// way.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace assay {

// For PCRE2 with UTF, UCP and MULTILINE. InvalidArgument, with the construct and its byte offset, for what would
// silently mean something else (class intersection, nested classes, possessive intervals, unknown escapes); other
// mistakes are left to PCRE2.
absl::StatusOr<std::string> translate_regex(std::string_view pattern);

}  // namespace assay
