// One Generate call: a generation on one side, a gRPC stream on the other.
//
// Owns: the generation; it is destroyed, which cancels what still runs, as soon as the client leaves or the deadline passes.
// Threads: parsing and tokenising on a worker, everything else on CallSite::streams; no thread waits for a stream. The engine's
// callback and gRPC's reactions only post. Errors: each call ends with one grpc::Status.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "assay/v1/inference.pb.h"
#include "server/grpc/call.h"
#include "server/service/generation.h"

namespace assay::rpc {

class GenerateCall final : public grpc::ServerWriteReactor<v1::GenerateResponse>,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // `context` and `request` live until the call is done, as gRPC guarantees.
  static grpc::ServerWriteReactor<v1::GenerateResponse>* start(CallSite& site, const grpc::CallbackServerContext& context,
                                                               const v1::GenerateRequest& request);

  void OnCancel() override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  GenerateCall(CallSite& site, const grpc::CallbackServerContext& context, const v1::GenerateRequest& request);

  absl::StatusOr<std::unique_ptr<Generation>> admit();
  void admitted(absl::StatusOr<std::unique_ptr<Generation>> generation);
  void wake();
  void advance();
  void take_events();
  void end(absl::Status status);  // by value: it may be the generation's own

  CallSite& site_;
  const grpc::CallbackServerContext& context_;
  const v1::GenerateRequest& request_;
  std::shared_ptr<GenerateCall> self_;  // until OnDone
  std::unique_ptr<CallLog> log_;
  std::atomic<bool> left_{false};       // the client is gone, or the deadline has passed
  std::atomic<bool> woken_{false};      // advance() is posted

  // Of the streams executor.
  std::unique_ptr<Generation> generation_;
  std::deque<v1::GenerateResponse> waiting_;  // the first one is being written while writing_
  bool writing_ = false;
};

}  // namespace assay::rpc
