// Who may call: API keys and browser origins.
//
// Threads: immutable after construction.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/http/message.h"

namespace assay::http {

// Keys are kept and compared as SHA-256 digests, all of them each time: the time says nothing about a key.
class KeyRing {
 public:
  explicit KeyRing(const std::vector<std::string>& keys);

  bool empty() const { return digests_.empty(); }
  // OK when there are no keys, or `Authorization: Bearer KEY` (scheme in any case) holds one of them. Unauthenticated otherwise.
  absl::Status check(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view key);
  std::vector<Digest> digests_;
};

// Cross-origin rules for browsers.
class Origins {
 public:
  // "*" allows every origin; empty list: none, no CORS header is ever sent.
  explicit Origins(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}

  bool allows(std::string_view origin) const;
  // Headers of a reply to `request`: none without an allowed Origin.
  Headers reply_headers(const HttpRequest& request) const;
  // Headers that answer a preflight for a path with these methods.
  Headers preflight_headers(const HttpRequest& request, const std::string& methods) const;

 private:
  std::vector<std::string> allowed_;
};

}  // namespace assay::http
