#include "server/grpc/generate_call.h"

#include <fmt/format.h>

#include "server/grpc/reply.h"
#include "server/grpc/request.h"
#include "server/service/request_id.h"

namespace assay::rpc {
namespace {

std::string log_fields(const Generation& generation) {
  const TextUsage usage = generation.usage();
  std::string text = fmt::format("prompt_tokens={} cached_tokens={} completion_tokens={} choices={}", usage.prompt_tokens,
                                 usage.cached_tokens, usage.completion_tokens, generation.num_choices());
  if (generation.first_token_s() >= 0.0) text += fmt::format(" first_token_s={:.4f}", generation.first_token_s());
  return text;
}

}  // namespace

GenerateCall::GenerateCall(CallSite& site, const grpc::CallbackServerContext& context, const v1::GenerateRequest& request)
    : site_(site), context_(context), request_(request), log_(std::make_unique<CallLog>(site, context, "Generate")) {
  log_->record.request_id = clean_request_id(request.request_id());
}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateCall::start(CallSite& site,
                                                                    const grpc::CallbackServerContext& context,
                                                                    const v1::GenerateRequest& request) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(site, context, request));
  call->self_ = call;
  site.worker_for(request.ByteSizeLong()).post([call] {
    // A std::function must be copyable, the generation is not.
    auto generation = std::make_shared<absl::StatusOr<std::unique_ptr<Generation>>>(call->admit());
    call->site_.streams.post([call, generation] { call->admitted(std::move(*generation)); });
  });
  return call.get();
}

absl::StatusOr<std::unique_ptr<Generation>> GenerateCall::admit() {
  if (left_) return left_status(context_);
  if (absl::Status status = site_.authorize(context_); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<TextService>> service = site_.lifecycle.accepting();
  if (!service.ok()) return service.status();
  absl::StatusOr<GenerateRequest> request = parse_generate(request_);
  if (!request.ok()) return request.status();
  request->id = log_->record.request_id;
  return (*service)->generate(*request);
}

void GenerateCall::admitted(absl::StatusOr<std::unique_ptr<Generation>> generation) {
  if (!generation.ok()) return end(generation.status());
  generation_ = *std::move(generation);
  generation_->on_ready([call = self_] { call->wake(); });
  advance();
}

void GenerateCall::OnCancel() {
  left_ = true;
  wake();
}

void GenerateCall::OnWriteDone(bool ok) {
  site_.streams.post([call = self_, ok] {
    call->writing_ = false;
    call->waiting_.pop_front();
    if (!ok) call->left_ = true;
    call->advance();
  });
}

void GenerateCall::OnDone() {
  log_.reset();
  const std::shared_ptr<GenerateCall> last = std::move(self_);
}

void GenerateCall::wake() {
  if (woken_.exchange(true)) return;
  site_.streams.post([call = shared_from_this()] {
    call->woken_ = false;
    call->advance();
  });
}

// Writes the next message, or ends the call; nothing to do before admission, during a write, and after the end.
void GenerateCall::advance() {
  if (generation_ == nullptr || writing_) return;
  if (left_) return end(left_status(context_));
  if (waiting_.empty()) take_events();
  if (!waiting_.empty()) {
    writing_ = true;
    StartWrite(&waiting_.front());
  } else if (generation_->done()) {
    end(generation_->status());
  }
}

// What the client does not read stays in the engine's mailbox, which is bounded.
void GenerateCall::take_events() {
  for (const TextEvent& event : generation_->take()) {
    waiting_.push_back(event_message(log_->record.request_id, event, generation_->tokenizer()));
  }
  if (!waiting_.empty() && generation_->done() && generation_->status().ok()) add_summary(*generation_, waiting_.back());
}

void GenerateCall::end(absl::Status status) {
  if (generation_ != nullptr) log_->record.fields = log_fields(*generation_);
  generation_.reset();
  log_->finish(status);
  Finish(grpc_status(status));
}

}  // namespace assay::rpc
