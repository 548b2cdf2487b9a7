// The server's log: one line per event on standard error, key=value after the first words. spdlog is behind it.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace assay {

// `level`: debug, info, warning or error.
void start_log(const std::string& level);

void log_debug(const std::string& line);
void log_info(const std::string& line);
void log_warning(const std::string& line);
void log_error(const std::string& line);

// key=value with quotes and escapes where needed, at most 300 bytes of value; for text that came from outside.
std::string log_field(std::string_view key, std::string_view value);

}  // namespace assay
