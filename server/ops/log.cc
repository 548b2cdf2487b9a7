#include "server/ops/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace assay {

void start_log(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("assay");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(logger);
}

void log_debug(const std::string& line) { spdlog::debug("{}", line); }
void log_info(const std::string& line) { spdlog::info("{}", line); }
void log_warning(const std::string& line) { spdlog::warn("{}", line); }
void log_error(const std::string& line) { spdlog::error("{}", line); }

std::string log_field(std::string_view key, std::string_view value) {
  constexpr size_t kMaxValueBytes = 300;
  std::string text;
  bool quote = value.empty();
  for (const char c : value.substr(0, kMaxValueBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    quote |= c == ' ' || c == '"' || c == '=' || byte < 0x20 || byte >= 0x7F;
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte >= 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  if (value.size() > kMaxValueBytes) text += "...";
  return quote ? fmt::format("{}=\"{}\"", key, text) : fmt::format("{}={}", key, text);
}

}  // namespace assay
