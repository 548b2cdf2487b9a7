#include "server/grpc/call.h"

namespace assay::rpc {
namespace {

constexpr size_t kLargeRequestBytes = 64 << 10;

}  // namespace

Executor& CallSite::worker_for(size_t request_bytes) {
  return request_bytes > kLargeRequestBytes ? large_worker : workers;
}

absl::Status CallSite::authorize(const grpc::CallbackServerContext& context) const {
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return hooks.authorize("");
  return hooks.authorize(std::string(found->second.data(), found->second.size()));
}

absl::Status left_status(const grpc::CallbackServerContext& context) {
  // The client's clock began when it sent the call, so it gives up a little before the deadline as counted here.
  constexpr std::chrono::milliseconds kTransit(50);
  if (context.deadline() <= std::chrono::system_clock::now() + kTransit) {
    return absl::DeadlineExceededError("the deadline of the call has passed");
  }
  return absl::CancelledError("the client has cancelled the call");
}

CallLog::CallLog(CallSite& site, const grpc::CallbackServerContext& context, const char* method) : site_(site) {
  ++site_.active_calls;
  record.method = method;
  record.peer = context.peer();
}

void CallLog::finish(const absl::Status& status) {
  record.code = absl::StatusCodeToString(status.code());
  record.message = std::string(status.message());
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  site_.hooks.on_call(record);
}

}  // namespace assay::rpc
