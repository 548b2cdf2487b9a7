// Texts of configuration values.
//
// Threads: pure functions. Errors: nullopt for what is not such a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/serve_config.h"

namespace assay {

std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);     // "0.2", "1e-3"; finite
std::optional<bool> parse_boolean(std::string_view text);     // true, false, 1, 0, on, off, yes, no
// Whole numbers and ranges ("3", "5-7", "0,2", or "0+2" where commas mean something else), ascending and without repetition. None: a text is neither, or a number
// is above 99,999.
std::optional<std::vector<int32_t>> parse_numbers(const std::vector<std::string>& texts);
std::optional<ByteSize> parse_byte_size(std::string_view text);  // "4096", "1.5GiB", "8 MiB", "64KiB"
std::optional<Duration> parse_duration(std::string_view text);   // "250ms", "30s", "1.5 s", "2min"; a bare number is seconds

std::string byte_size_text(ByteSize size);
std::string duration_text(Duration duration);

}  // namespace assay
