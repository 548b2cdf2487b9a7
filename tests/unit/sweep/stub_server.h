// A scripted HTTP server on its own thread: says given bytes at given times, and misbehaves on demand.
//
// Owns: an acceptor on 127.0.0.1, a thread, every open connection. Threads: the script runs on the stub's thread.
// Errors: failing to listen throws (a test cannot go on then).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace assay::sweep {

struct StubRequest {
  std::string method, path, body;
  int index = 0;  // of the requests to this path, from 0
};

struct StubStep {
  double at_ms = 0.0;  // after the request was read
  std::string bytes;
};

struct StubReply {
  enum class After { kKeepAlive, kCloseSilently, kReset, kHang };
  std::vector<StubStep> steps;
  After after = After::kKeepAlive;
};

using StubScript = std::function<StubReply(const StubRequest&)>;

class StubServer {
 public:
  explicit StubServer(StubScript script);
  ~StubServer();

  int port() const;
  std::string url() const;
  int connections() const;  // accepted so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A port of 127.0.0.1 on which nobody listens.
int closed_port();

// ---- pieces of replies
std::string http_reply(int status, const std::string& content_type, const std::string& body);  // with Content-Length
std::string stream_head(const std::string& content_type = "text/event-stream");                // chunked body follows
std::string http_chunk(const std::string& bytes);                                              // empty: the last one
std::string sse(const std::string& data);
std::string token_event(const std::string& text);
std::string finish_event();
std::string usage_event(int64_t prompt_tokens, int64_t completion_tokens);

// A right stream of `tokens` one-token chunks: the first at `first_ms`, then one every `gap_ms`.
StubReply token_stream(int tokens, double first_ms, double gap_ms, int64_t prompt_tokens = 7);

}  // namespace assay::sweep
