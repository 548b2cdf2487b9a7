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

}  // namespace

void merge_certificate(const CertificateReport& more, CertificateReport& report) {
  add_cells(more.decode, report.decode);
  add_cells(more.prefill, report.prefill);
  take_worse(more.worst, report.worst);
  take_worse(more.worst_value, report.worst_value);
  report.certified = report.certified && more.certified;
}

}  // namespace assay
