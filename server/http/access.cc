#include "server/http/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

namespace assay::http {
namespace {

constexpr std::string_view kExposedHeaders = "X-Request-Id, Retry-After";
constexpr size_t kMaxEchoedHeaders = 1024;

bool header_list_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' ||
         c == ' ' || c == '*';
}

}  // namespace

KeyRing::KeyRing(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(digest(key));
}

KeyRing::Digest KeyRing::digest(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::Status KeyRing::check(std::string_view authorization) const {
  if (digests_.empty()) return absl::OkStatus();
  if (authorization.empty()) {
    return absl::UnauthenticatedError("an API key is required: send the header Authorization: Bearer KEY");
  }
  const size_t space = authorization.find(' ');
  if (space == std::string_view::npos || !equals_ignoring_case(authorization.substr(0, space), "bearer")) {
    return absl::UnauthenticatedError("the Authorization header must be of the form: Bearer KEY");
  }
  std::string_view key = authorization.substr(space + 1);
  while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
  while (!key.empty() && key.back() == ' ') key.remove_suffix(1);
  const Digest sent = digest(key);
  bool known = false;
  for (const Digest& digest : digests_) known |= CRYPTO_memcmp(sent.data(), digest.data(), digest.size()) == 0;
  return known ? absl::OkStatus() : absl::UnauthenticatedError("the API key is not valid here");
}

bool Origins::allows(std::string_view origin) const {
  return !origin.empty() && std::any_of(allowed_.begin(), allowed_.end(), [&](const std::string& allowed) {
    return allowed == "*" || equals_ignoring_case(allowed, origin);
  });
}

Headers Origins::reply_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("Origin");
  if (!allows(origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", std::string(kExposedHeaders)}};
}

Headers Origins::preflight_headers(const HttpRequest& request, const std::string& methods) const {
  if (!allows(request.header("Origin"))) return {};
  std::string wanted;
  for (const char c : request.header("Access-Control-Request-Headers").substr(0, kMaxEchoedHeaders)) {
    if (header_list_character(c)) wanted += c;
  }
  Headers headers{{"Access-Control-Allow-Methods", methods}, {"Access-Control-Max-Age", "600"}};
  if (!wanted.empty()) headers.emplace_back("Access-Control-Allow-Headers", wanted);
  return headers;
}

}  // namespace assay::http
