// An HTTP/1.1 server: listens, keeps connections, runs a site. No transport library is visible here.
//
// Owns: I/O threads, worker threads, all connections. A stream costs no thread.
// Threads: methods may be called from any thread; handlers of the site run on worker threads.
// Errors: start says which address or certificate is the trouble.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/limits.h"
#include "server/http/site.h"

namespace assay::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // IPv4 or IPv6 address, or a name such as localhost
  uint16_t port = 8000;            // 0 = any free port
  std::string certificate_file;    // PEM; with key_file: TLS
  std::string key_file;
  int io_threads = 2;
  int worker_threads = 2;  // besides one for large bodies
  Limits limits;
};

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> start(const ServerOptions& options, Site site);
  ~Server();  // stop()

  uint16_t port() const;
  // Requests whose reply is not complete.
  int active_requests() const;
  // Replies that begin from now on end their connections; new ones are still taken (health, metrics).
  void close_after_replies();
  // Ends everything at once; producers are destroyed. Idempotent.
  void stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay::http
