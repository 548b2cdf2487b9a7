#include "server/eval/pool_measure.h"

#include <algorithm>
#include <chrono>

namespace assay {

void add_cells(const CertificateCells& cells, CertificateCells& to) {
  to.metered += cells.metered;
  to.certified += cells.certified;
  to.conditional += cells.conditional;
  to.risk_ranked += cells.risk_ranked;
  to.saturated += cells.saturated;
  to.overflow += cells.overflow;
  to.exact += cells.exact;
}

PoolMeter::PoolMeter(const std::string& spec, ModelRun& run) : run_(run) {
  measure_.spec = spec;
  measure_.bytes_per_token_head = run.engine().pool().bytes_per_token_head;
  measure_.has_meter = run.engine().pool().has_meter();
  measure_.tau = run.engine().config().kv_tau;
}

absl::StatusOr<Completion> PoolMeter::complete(Request request) {
  const auto start = std::chrono::steady_clock::now();
  const size_t prompt_tokens = request.prompt.size();
  absl::StatusOr<Completion> completion = run_.complete(std::move(request));
  if (!completion.ok()) return completion;
  measure_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  measure_.tokens += static_cast<int64_t>(prompt_tokens + completion->tokens.size());
  if (completion->certificate) {
    const CertificateReport& report = *completion->certificate;
    add_cells(report.decode, measure_.decode);
    add_cells(report.prefill, measure_.prefill);
    measure_.worst = std::max(measure_.worst, report.worst.raw);
  }
  return completion;
}

PoolMeasure PoolMeter::finish() {
  if (measure_.has_meter) measure_.meters = run_.meters();
  measure_.gate = run_.engine().gate();  // at least as new as the meters
  return std::move(measure_);
}

}  // namespace assay
