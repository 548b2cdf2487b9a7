// What a request may ask of the meter and what it gets told. Scope: one layer, one query head, one step at a time; never a
// statement about the model's whole output. Labels and guarantees: docs/certificate.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

struct CertificateOptions {
  bool report = false;
  std::optional<double> tau;    // may only tighten the server's
  std::optional<double> delta;  // likewise
  enum class Policy { kServer, kObserve, kRepair, kExact } policy = Policy::kServer;
};

struct CertificateCells {
  int64_t metered = 0, certified = 0, conditional = 0, risk_ranked = 0, saturated = 0, overflow = 0, exact = 0;
};

struct CertificateWorst {
  double bound = 0;  // total variation, min(1, .); or the value bound
  double raw = 0;    // +infinity where it left fp32
  int32_t layer = -1, head = -1, step = -1;  // step: generated token, from 0
};

// What the gate did; cells by the last rung that was taken for them.
struct CertificateGate {
  int64_t refined = 0, paged = 0, whole_head = 0, whole_layer = 0;
  int64_t pages_in = 0, bytes_in = 0;  // (layer, KV head, page) read from the backing store
  int64_t repair_cache_hits = 0;
  int64_t pages_not_backed = 0;  // wanted, and not to be had: their cells stayed over tau
};

// Of one sequence; valid in its terminal event.
struct CertificateReport {
  std::string pool, radius, bound;
  std::string guarantee;  // deterministic | conditional | none
  std::string policy;     // observe | repair | exact
  double tau = 0, tau_v = 0, delta = 0;
  bool certified = false;  // true iff every decode cell is certified or exact
  CertificateCells decode, prefill;
  int32_t prefill_stride = 0;
  CertificateWorst worst, worst_value;
  CertificateGate gate;
  std::string backing = "none";  // complete | partial | none
};

}  // namespace assay
