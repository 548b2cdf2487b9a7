// What a request may ask of the meter, what the meter is told for each slice, and how a request's delta is divided.
//
// Threads: plain values and pure functions. Errors: InvalidArgument that names the field of the request.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/api/certificate.h"
#include "engine/api/config.h"
#include "engine/api/model_info.h"
#include "engine/api/request.h"
#include "kernels/kv/meter.h"

namespace assay {

// The running engine's own terms, fixed at start.
struct CertificateRules {
  bool has_meter = false;  // false: the pool is exact
  bool has_backing = false;
  std::string pool;
  std::string radius = "none", bound = "none";
  std::string guarantee = "deterministic";  // deterministic | conditional | none
  CertificateOptions::Policy policy = CertificateOptions::Policy::kObserve;  // of requests that name none
  double tau = 0, tau_v = 0, delta = 0;
  int32_t prefill_stride = 0;   // 0: prefill rows are not metered
  int64_t cells_per_query = 0;  // layers x global query heads
};

CertificateRules certificate_rules(const EngineConfig& config, const ModelInfo& model, const PoolInfo& pool);

// A request may only tighten tau and delta. Exact pools honour every policy, others `repair` and `exact` only with exact
// rows to go back to.
absl::Status check_certificate(const CertificateOptions& options, const CertificateRules& rules);

// Which share of a request's delta a slice spends.
struct MeteredSlice {
  int32_t first_position = 0;  // compressed rows its queries can read, at most
  bool decode = false;
  int32_t preemptions = 0;  // of the sequence so far
};

// Probability that a slice may spend on one (layer, head, query position). Over everything a request can ever meter (n
// sequences, prompt and generated positions, any number of computations after preemption) the shares add up to at most
// `delta`; docs/adr/0017-one-delta-per-request.md. `sampling.max_tokens` is clamped.
double local_delta(double delta, const Request& request, const CertificateRules& rules, const MeteredSlice& slice);

// Policy of a request, or the server's own.
CertificateOptions::Policy policy_of(const Request& request, const CertificateRules& rules);

// Rounded so that no float comparison is laxer than the double threshold.
kv::MeterThresholds meter_thresholds(const Request& request, const CertificateRules& rules, const MeteredSlice& slice);

}  // namespace assay
