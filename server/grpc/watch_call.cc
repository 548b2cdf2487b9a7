#include "server/grpc/watch_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/grpc/reply.h"
#include "server/service/status.h"

namespace assay::rpc {
namespace {

constexpr double kMinIntervalS = 0.5;  // the engine reads the meter once a second
constexpr double kMaxIntervalS = 3600.0;
// Between snapshots: how soon a watch sees that the server drains.
constexpr auto kLook = std::chrono::milliseconds(250);

}  // namespace

WatchCall::WatchCall(CallSite& site, const grpc::CallbackServerContext& context, const v1::WatchMetersRequest& request)
    : site_(site),
      context_(context),
      request_(request),
      too_many_(++site.watchers > kMaxWatchers),
      log_(std::make_unique<CallLog>(site, context, "WatchMeters")) {}

WatchCall::~WatchCall() { --site_.watchers; }

grpc::ServerWriteReactor<v1::MeterSnapshot>* WatchCall::start(CallSite& site, const grpc::CallbackServerContext& context,
                                                              const v1::WatchMetersRequest& request) {
  std::shared_ptr<WatchCall> call(new WatchCall(site, context, request));
  call->self_ = call;
  call->post(&WatchCall::begin);
  return call.get();
}

void WatchCall::post(void (WatchCall::*step)()) {
  site_.streams.post([call = shared_from_this(), step] {
    if (!call->ended_) ((*call).*step)();
  });
}

void WatchCall::OnCancel() {
  left_ = true;
  post(&WatchCall::look);
}

void WatchCall::OnWriteDone(bool ok) {
  if (!ok) left_ = true;
  post(&WatchCall::written);
}

void WatchCall::OnDone() {
  log_.reset();
  const std::shared_ptr<WatchCall> last = std::move(self_);
}

absl::Status WatchCall::check() const {
  if (absl::Status status = site_.authorize(context_); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<TextService>> service = site_.lifecycle.accepting();
  if (!service.ok()) return service.status();
  if (absl::Status status = (*service)->check_model(request_.model()); !status.ok()) return status;
  if (request_.has_interval_s() && !(request_.interval_s() >= kMinIntervalS && request_.interval_s() <= kMaxIntervalS)) {
    return field_error("interval_s", fmt::format("interval_s must be from {} to {}, got {}", kMinIntervalS, kMaxIntervalS,
                                                 request_.interval_s()));
  }
  if (request_.has_max_snapshots() && request_.max_snapshots() < 1) {
    return field_error("max_snapshots", fmt::format("max_snapshots must be at least 1, got {}", request_.max_snapshots()));
  }
  const Engine& engine = (*service)->engine();
  if (!engine.pool().has_meter()) {
    return absl::FailedPreconditionError(fmt::format("the {} pool has no meter: it serves exact rows", engine.pool().pool));
  }
  if (engine.config().kv_telemetry == "off") return absl::FailedPreconditionError("the server runs with --kv-telemetry off");
  if (too_many_) {
    return absl::ResourceExhaustedError(fmt::format("{} calls watch the meter already; try again later", kMaxWatchers));
  }
  return absl::OkStatus();
}

void WatchCall::begin() {
  if (absl::Status status = check(); !status.ok()) return end(status);
  const double interval_s = request_.has_interval_s() ? request_.interval_s() : 1.0;
  interval_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval_s));
  next_ = Clock::now();
  look();
}

void WatchCall::look() {
  if (writing_ || interval_ == Clock::duration::zero()) return;  // written() looks again; so does begin()
  if (left_) return end(left_status(context_));
  if (Clock::now() < next_) return wait();
  if (absl::Status status = send(); !status.ok()) end(status);
}

absl::Status WatchCall::send() {
  absl::StatusOr<std::shared_ptr<TextService>> service = site_.lifecycle.accepting();
  if (!service.ok()) return service.status();
  const Engine& engine = (*service)->engine();
  MeterSnapshot snapshot = engine.meters();
  if (snapshot.heads.empty()) {  // nothing has run yet
    snapshot.num_layers = engine.model().num_layers;
    snapshot.num_heads = engine.model().num_heads;
    snapshot.heads.resize(static_cast<size_t>(snapshot.num_layers) * snapshot.num_heads);
  }
  message_ = meter_message(snapshot, engine.pool());
  writing_ = true;
  StartWrite(&message_);
  return absl::OkStatus();
}

void WatchCall::written() {
  writing_ = false;
  ++num_sent_;
  if (!left_ && request_.has_max_snapshots() && num_sent_ == request_.max_snapshots()) return end(absl::OkStatus());
  next_ = std::max(next_ + interval_, Clock::now());  // what was missed is not made up for
  look();
}

void WatchCall::wait() {
  if (absl::Status status = site_.lifecycle.accepting().status(); !status.ok()) return end(status);
  // Weak: the alarm keeps its callback, and belongs to the call.
  alarm_.Set(std::min(next_, Clock::now() + kLook), [weak = weak_from_this()](bool) {
    if (const std::shared_ptr<WatchCall> call = weak.lock()) call->post(&WatchCall::look);
  });
}

void WatchCall::end(const absl::Status& status) {
  ended_ = true;
  log_->record.fields = fmt::format("snapshots={}", num_sent_);
  log_->finish(status);
  Finish(grpc_status(status));
}

}  // namespace assay::rpc
