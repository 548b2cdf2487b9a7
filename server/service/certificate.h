// The report on what the KV cache did to one request, and the check of a request's wishes against the server's pool.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/api/model_info.h"
#include "server/service/generate_request.h"

namespace assay {

// A cell is one (layer, query head, decode step). Meanings of the labels: docs/api.md.
struct CellCounts {
  int64_t metered = 0, certified = 0, conditional = 0, risk_ranked = 0, saturated = 0, overflow = 0, exact = 0;
};

struct CertificateReport {
  std::string pool, radius = "none", bound = "none", guarantee = "deterministic", policy = "exact", backing = "none";
  double tau = 0.2, tau_v = 0.05, delta = 0.01;
  bool certified = true;  // every decode cell is certified or exact
  CellCounts decode, prefill;
};

// Limits that a request may only tighten.
struct CertificateLimits {
  double tau = 0.2, tau_v = 0.05, delta = 0.01;
};

// Names the key at fault. On the `exact` pool every policy is honoured: no row is ever compressed.
absl::Status check_certificate(const CertificateRequest& request, const CertificateLimits& limits);

// Report of a request on the `exact` pool: all cells of its decode steps are exact.
CertificateReport exact_certificate(const CertificateRequest& request, const CertificateLimits& limits,
                                    const ModelInfo& model, int64_t decode_steps);

}  // namespace assay
