#include "server/service/certificate.h"

#include <fmt/format.h>

#include "server/service/status.h"

namespace assay {
namespace {

absl::Status check_tightens(const char* field, std::optional<double> value, double limit) {
  if (!value) return absl::OkStatus();
  if (*value > 0.0 && *value <= limit) return absl::OkStatus();
  return field_error(field, fmt::format("{} must be above 0 and at most the server's own {} (a request may only tighten it), "
                                        "got {}", field, limit, *value));
}

const char* policy_name(CertificateOptions::Policy policy) {
  switch (policy) {
    case CertificateOptions::Policy::kObserve: return "observe";
    case CertificateOptions::Policy::kRepair: return "repair";
    default: return "exact";  // what this pool does by itself
  }
}

}  // namespace

absl::Status check_certificate(const CertificateOptions& request, const CertificateLimits& limits) {
  if (absl::Status status = check_tightens("certificate.tau", request.tau, limits.tau); !status.ok()) return status;
  return check_tightens("certificate.delta", request.delta, limits.delta);
}

CertificateReport exact_certificate(const CertificateOptions& request, const CertificateLimits& limits,
                                    const ModelInfo& model, int64_t decode_steps) {
  CertificateReport report;
  report.pool = "exact";
  report.radius = report.bound = "none";
  report.guarantee = "deterministic";
  report.policy = policy_name(request.policy);
  report.certified = true;
  report.tau = request.tau.value_or(limits.tau);
  report.tau_v = limits.tau_v;
  report.delta = request.delta.value_or(limits.delta);
  report.decode.exact = decode_steps * model.num_layers * model.num_heads;
  return report;
}

}  // namespace assay
