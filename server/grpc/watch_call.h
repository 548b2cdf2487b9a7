// One WatchMeters call: a snapshot of the meter per (layer, head), again and again.
//
// Owns: one message and one alarm; the next snapshot is made when the last one was taken by the transport, so a slow client costs
// one message. Threads: everything on CallSite::streams; gRPC's callbacks only post; no thread waits. Errors: each call ends with
// one grpc::Status.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "assay/v1/inference.pb.h"
#include "server/grpc/call.h"

namespace assay::rpc {

inline constexpr int kMaxWatchers = 16;

class WatchCall final : public grpc::ServerWriteReactor<v1::MeterSnapshot>, public std::enable_shared_from_this<WatchCall> {
 public:
  // `context` and `request` live until the call is done, as gRPC guarantees.
  static grpc::ServerWriteReactor<v1::MeterSnapshot>* start(CallSite& site, const grpc::CallbackServerContext& context,
                                                            const v1::WatchMetersRequest& request);
  ~WatchCall() override;

  void OnCancel() override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  using Clock = std::chrono::system_clock;
  WatchCall(CallSite& site, const grpc::CallbackServerContext& context, const v1::WatchMetersRequest& request);

  // Runs `step` on the streams executor, while the call lives and has not ended.
  void post(void (WatchCall::*step)());
  void begin();
  absl::Status check() const;
  void look();  // is there something to send, or a reason to end?
  absl::Status send();
  void written();
  void wait();
  void end(const absl::Status& status);

  CallSite& site_;
  const grpc::CallbackServerContext& context_;
  const v1::WatchMetersRequest& request_;
  const bool too_many_;
  std::shared_ptr<WatchCall> self_;  // until OnDone
  std::unique_ptr<CallLog> log_;
  std::atomic<bool> left_{false};  // the client is gone, or the deadline has passed

  // Of the streams executor.
  v1::MeterSnapshot message_;  // being written while writing_
  grpc::Alarm alarm_;
  Clock::duration interval_{};
  Clock::time_point next_;
  int64_t num_sent_ = 0;
  bool writing_ = false;
  bool ended_ = false;
};

}  // namespace assay::rpc
