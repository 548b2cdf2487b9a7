#include "server/grpc/reply.h"

#include <chrono>

#include "server/service/status.h"

namespace assay::rpc {
namespace {

v1::TokenLogprobs score_message(const TokenScore& score, const Tokenizer& tokenizer) {
  v1::TokenLogprobs message;
  message.mutable_chosen()->set_token_id(score.token);
  message.mutable_chosen()->set_token(score.bytes);
  if (score.logprob) message.mutable_chosen()->set_logprob(*score.logprob);
  for (const auto& [token, logprob] : score.top) {
    v1::TokenLogprob& top = *message.add_top();
    top.set_token_id(token);
    top.set_token(tokenizer.token_bytes(token));
    top.set_logprob(logprob);
  }
  return message;
}

v1::CertificateCells cells_message(const CertificateCells& cells) {
  v1::CertificateCells message;
  message.set_metered(cells.metered);
  message.set_certified(cells.certified);
  message.set_conditional(cells.conditional);
  message.set_risk_ranked(cells.risk_ranked);
  message.set_saturated(cells.saturated);
  message.set_overflow(cells.overflow);
  message.set_exact(cells.exact);
  return message;
}

v1::CertificateWorst worst_message(const CertificateWorst& worst) {
  v1::CertificateWorst message;
  message.set_bound(worst.bound);
  message.set_raw(worst.raw);
  message.set_layer(worst.layer);
  message.set_head(worst.head);
  message.set_step(worst.step);
  return message;
}

v1::CertificateGate gate_message(const CertificateGate& gate) {
  v1::CertificateGate message;
  message.set_refined(gate.refined);
  message.set_paged(gate.paged);
  message.set_whole_head(gate.whole_head);
  message.set_whole_layer(gate.whole_layer);
  return message;
}

v1::Certificate certificate_message(const CertificateReport& report) {
  v1::Certificate message;
  message.set_pool(report.pool);
  message.set_radius(report.radius);
  message.set_bound(report.bound);
  message.set_guarantee(report.guarantee);
  message.set_policy(report.policy);
  message.set_tau(report.tau);
  message.set_tau_v(report.tau_v);
  message.set_delta(report.delta);
  message.set_certified(report.certified);
  *message.mutable_decode() = cells_message(report.decode);
  *message.mutable_prefill() = cells_message(report.prefill);
  message.set_prefill_stride(report.prefill_stride);
  *message.mutable_worst() = worst_message(report.worst);
  *message.mutable_worst_value() = worst_message(report.worst_value);
  message.set_backing(report.backing);
  *message.mutable_gate() = gate_message(report.gate);
  message.set_pages_in(report.gate.pages_in);
  message.set_bytes_in(report.gate.bytes_in);
  message.set_repair_cache_hits(report.gate.repair_cache_hits);
  message.set_pages_not_backed(report.gate.pages_not_backed);
  return message;
}

void fill_cells(const HeadCells& cells, v1::HeadCells& message) {
  message.set_metered(cells.metered);
  message.set_over_tau(cells.over_tau);
  message.set_saturated(cells.saturated);
  message.set_overflow(cells.overflow);
  message.set_tv_sum(cells.tv_sum);
  message.set_value_sum(cells.value_sum);
}

}  // namespace

v1::GenerateResponse event_message(const std::string& id, const TextEvent& event, const Tokenizer& tokenizer) {
  v1::GenerateResponse message;
  message.set_id(id);
  message.set_index(event.choice);
  message.set_text(event.text);
  message.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  for (const TokenScore& score : event.scores) *message.add_logprobs() = score_message(score, tokenizer);
  if (event.finish) message.set_finish_reason(*event.finish == FinishReason::kLength ? "length" : "stop");
  return message;
}

void add_summary(const Generation& generation, v1::GenerateResponse& message) {
  const TextUsage usage = generation.usage();
  message.mutable_usage()->set_prompt_tokens(static_cast<int32_t>(usage.prompt_tokens));
  message.mutable_usage()->set_completion_tokens(static_cast<int32_t>(usage.completion_tokens));
  message.mutable_usage()->set_cached_tokens(static_cast<int32_t>(usage.cached_tokens));
  if (generation.certificate()) *message.mutable_certificate() = certificate_message(*generation.certificate());
}

v1::MeterSnapshot meter_message(const MeterSnapshot& snapshot, const PoolInfo& pool) {
  v1::MeterSnapshot message;
  message.set_time_s(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  message.set_pool(pool.pool);
  message.set_num_layers(snapshot.num_layers);
  message.set_num_heads(snapshot.num_heads);
  for (size_t i = 0; i < snapshot.heads.size(); ++i) {
    const HeadSnapshot& head = snapshot.heads[i];
    v1::HeadMeter& meter = *message.add_heads();
    meter.set_layer(static_cast<int32_t>(i) / snapshot.num_heads);
    meter.set_head(static_cast<int32_t>(i) % snapshot.num_heads);
    fill_cells(head.cells[static_cast<size_t>(MeterPhase::kDecode)], *meter.mutable_decode());
    fill_cells(head.cells[static_cast<size_t>(MeterPhase::kPrefill)], *meter.mutable_prefill());
    meter.set_worst(head.worst);
    meter.set_recent_worst(head.recent_worst);
  }
  return message;
}

grpc::Status grpc_status(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // The codes of both libraries have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), describe_error(status).message);
}

}  // namespace assay::rpc
