// What every call of the service shares: who may call, where its work runs, and who is told of it.
//
// Threads: any.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/grpc/executor.h"
#include "server/grpc/server.h"
#include "server/service/lifecycle.h"

namespace assay::rpc {

struct CallSite {
  CallSite(const Lifecycle& lifecycle_of_server, ServerHooks server_hooks)
      : lifecycle(lifecycle_of_server), hooks(std::move(server_hooks)) {}

  // Where a request of this size is parsed and tokenised: small ones never wait behind large ones.
  Executor& worker_for(size_t request_bytes);
  // OK when the call brings a key that the server knows, or needs none.
  absl::Status authorize(const grpc::CallbackServerContext& context) const;

  const Lifecycle& lifecycle;
  const ServerHooks hooks;
  std::atomic<int> active_calls{0};
  std::atomic<int> watchers{0};  // WatchMeters calls among them
  Executor workers{2};
  Executor large_worker{1};
  Executor streams{1};  // everything that happens to a Generate call after its admission, in order
};

// Why a call ends whose client is gone: its deadline has passed, or it was cancelled.
absl::Status left_status(const grpc::CallbackServerContext& context);

// Counts a call as active while it lives and makes its record.
class CallLog {
 public:
  CallLog(CallSite& site, const grpc::CallbackServerContext& context, const char* method);
  ~CallLog() { --site_.active_calls; }
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // Once, before the call is finished.
  void finish(const absl::Status& status);

  CallRecord record;

 private:
  CallSite& site_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace assay::rpc
