#include "server/http/head_text.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace assay::http {
namespace {

struct Phrase {
  int status;
  std::string_view text;
};

constexpr Phrase kPhrases[] = {{200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"},
                               {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
                               {408, "Request Timeout"}, {413, "Content Too Large"}, {415, "Unsupported Media Type"},
                               {417, "Expectation Failed"}, {429, "Too Many Requests"},
                               {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"}, {501, "Not Implemented"},
                               {503, "Service Unavailable"}, {505, "HTTP Version Not Supported"}};

std::string http_date() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  const size_t size = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, size);
}

}  // namespace

std::string_view reason_phrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.text;
  }
  return "Unknown";
}

std::string head_text(int status, const Headers& headers, BodyFraming framing, size_t body_size, bool keep_alive,
                      bool http_1_0) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: assay\r\nDate: {}\r\n", status, reason_phrase(status), http_date());
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  if (framing == BodyFraming::kLength && status != 204) text += fmt::format("Content-Length: {}\r\n", body_size);
  if (framing == BodyFraming::kChunked) text += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive) text += "Connection: close\r\n";
  if (keep_alive && http_1_0) text += "Connection: keep-alive\r\n";
  return text + "\r\n";
}

std::string chunk_text(std::string_view text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }

}  // namespace assay::http
