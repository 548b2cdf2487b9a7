#include "server/service/certificate.h"

namespace assay {
namespace {

void add_cells(const CertificateCells& more, CertificateCells& cells) {
  cells.metered += more.metered;
  cells.certified += more.certified;
  cells.conditional += more.conditional;
  cells.risk_ranked += more.risk_ranked;
  cells.saturated += more.saturated;
  cells.overflow += more.overflow;
  cells.exact += more.exact;
}

void take_worse(const CertificateWorst& other, CertificateWorst& worst) {
  if (other.layer >= 0 && (worst.layer < 0 || other.raw > worst.raw)) worst = other;
}

void add_gate(const CertificateGate& more, CertificateGate& gate) {
  gate.refined += more.refined;
  gate.paged += more.paged;
  gate.whole_head += more.whole_head;
  gate.whole_layer += more.whole_layer;
  gate.pages_in += more.pages_in;
  gate.bytes_in += more.bytes_in;
  gate.repair_cache_hits += more.repair_cache_hits;
  gate.pages_not_backed += more.pages_not_backed;
}

}  // namespace

void merge_certificate(const CertificateReport& more, CertificateReport& report) {
  add_cells(more.decode, report.decode);
  add_cells(more.prefill, report.prefill);
  take_worse(more.worst, report.worst);
  take_worse(more.worst_value, report.worst_value);
  add_gate(more.gate, report.gate);
  if (more.backing == "partial") report.backing = more.backing;
  report.certified = report.certified && more.certified;
}

}  // namespace assay
