// Literals: escapes of a quoted string, digits of an integer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/text/template/value.h"

namespace assay::jinja {

// The text between the quotes -> the string it stands for (Python's escapes). On failure `problem` says why.
std::optional<std::string> decode_string_literal(std::string_view body, std::string* problem);

// Digits of `base` (2 ... 36, no sign) -> the integer; nothing when a digit is wrong or the value does not fit.
std::optional<Int> parse_digits(std::string_view digits, int base);

}  // namespace assay::jinja
