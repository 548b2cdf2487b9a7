// What a client may cost the transport.
#pragma once

#include <chrono>
#include <cstdint>

namespace assay::http {

struct Limits {
  uint32_t max_header_bytes = 64 * 1024;
  int max_headers = 100;
  uint64_t max_body_bytes = 8 << 20;
  int max_bodies = 64;  // all bodies in memory together: this many of max_body_bytes; above it 503
  int max_connections = 16384;
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds header_timeout{30'000};  // first byte -> end of the headers
  std::chrono::milliseconds body_timeout{120'000};   // the whole body
  std::chrono::milliseconds write_timeout{60'000};   // one write, from start to end
  std::chrono::milliseconds keep_alive_comment{15'000};  // silence on a stream before a comment is sent
};

}  // namespace assay::http
