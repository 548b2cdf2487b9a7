// The report on what the KV cache did to one request, and the check of a request's wishes against the server's pool.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/api/certificate.h"
#include "engine/api/model_info.h"

namespace assay {

// Limits that a request may only tighten.
struct CertificateLimits {
  double tau = 0.2, tau_v = 0.05, delta = 0.01;
};

// Names the key at fault. On the `exact` pool every policy is honoured: no row is ever compressed.
absl::Status check_certificate(const CertificateOptions& request, const CertificateLimits& limits);

// Report of a request on the `exact` pool: all cells of its decode steps are exact.
CertificateReport exact_certificate(const CertificateOptions& request, const CertificateLimits& limits,
                                    const ModelInfo& model, int64_t decode_steps);

}  // namespace assay
