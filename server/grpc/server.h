// The gRPC face of a server: assay.v1.Inference, standard health (grpc.health.v1) and reflection. No gRPC type is visible here.
//
// Owns: the listening port, gRPC's threads, three small executors; a stream costs no thread.
// Threads: methods may be called from any thread; hooks are called from the executors.
// Errors: start says which address or file is the trouble.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/service/lifecycle.h"

namespace assay::rpc {

struct ServerOptions {
  std::string host = "127.0.0.1";  // IPv4 or IPv6 address, or a name
  uint16_t port = 8001;            // 0 = any free port
  std::string certificate_file;    // PEM; with key_file: TLS
  std::string key_file;
  int32_t max_message_bytes = 8 << 20;  // of a request; above it RESOURCE_EXHAUSTED
  int32_t max_streams = 16384;          // calls at once per connection; more wait at the client
};

// One finished call, for logs.
struct CallRecord {
  std::string method;      // Generate, Tokenize, ...
  std::string code;        // OK, INVALID_ARGUMENT, ...
  std::string request_id;  // of Generate
  std::string peer;
  std::string fields;   // key=value pairs
  std::string message;  // why it failed
  double seconds = 0.0;
};

struct ServerHooks {
  // Gets the metadata `authorization` (empty: none was sent) of every call but health and reflection.
  std::function<absl::Status(std::string_view)> authorize;
  std::function<void(const CallRecord&)> on_call;
};

class Server {
 public:
  // `lifecycle` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> start(const ServerOptions& options, const Lifecycle& lifecycle,
                                                       ServerHooks hooks);
  ~Server();  // stop()

  uint16_t port() const;
  // Calls that are not done; health, reflection and those that only watch left out.
  int active_calls() const;
  // Health says SERVING exactly when `lifecycle` accepts requests; call it after each change.
  void refresh_health();
  // Cancels what runs. Idempotent.
  void stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay::rpc
