#include "server/service/request_id.h"

#include <fmt/format.h>

#include <random>

namespace assay {
namespace {

bool decent(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == ':' ||
         c == '-';
}

}  // namespace

std::string make_request_id() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) | device();
  }()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

std::string clean_request_id(std::string_view from_client) {
  std::string id;
  for (const char c : from_client) {
    if (id.size() == kMaxRequestIdLength) break;
    if (decent(c)) id += c;
  }
  return id.empty() ? make_request_id() : id;
}

}  // namespace assay
