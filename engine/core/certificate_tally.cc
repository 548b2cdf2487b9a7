#include "engine/core/certificate_tally.h"

namespace assay {
namespace {

constexpr auto kDecode = static_cast<int>(kv::Phase::kDecode), kPrefill = static_cast<int>(kv::Phase::kPrefill);

void add_counts(kv::CellCounts& sum, const kv::CellCounts& more) {
  sum.metered += more.metered;
  sum.certified += more.certified;
  sum.conditional += more.conditional;
  sum.risk_ranked += more.risk_ranked;
  sum.saturated += more.saturated;
  sum.overflow += more.overflow;
  sum.exact += more.exact;
}

// By the raw value, which still tells cells apart whose bound is 1. The earlier cell wins a tie.
void take_worse(kv::WorstCell& worst, const kv::WorstCell& other) {
  if (other.layer >= 0 && (worst.layer < 0 || other.raw > worst.raw)) worst = other;
}

CertificateCells cells_of(const kv::CellCounts& counts) {
  const auto number = [](uint64_t count) { return static_cast<int64_t>(count); };
  return {.metered = number(counts.metered),
          .certified = number(counts.certified),
          .conditional = number(counts.conditional),
          .risk_ranked = number(counts.risk_ranked),
          .saturated = number(counts.saturated),
          .overflow = number(counts.overflow),
          .exact = number(counts.exact)};
}

// The query at position p decides the token at p + 1.
CertificateWorst worst_of(const kv::WorstCell& cell, int32_t num_prompt) {
  if (cell.layer < 0) return {};
  return {.bound = cell.bound,
          .raw = cell.raw,
          .layer = cell.layer,
          .head = cell.head,
          .step = cell.position + 1 - num_prompt};
}

const char* policy_name(CertificateOptions::Policy policy) {
  switch (policy) {
    case CertificateOptions::Policy::kRepair:
      return "repair";
    case CertificateOptions::Policy::kExact:
      return "exact";
    case CertificateOptions::Policy::kObserve:
    case CertificateOptions::Policy::kServer:
      break;
  }
  return "observe";
}

CertificateGate gate_of(const kv::GateTally& tally) {
  const auto number = [](uint64_t count) { return static_cast<int64_t>(count); };
  return {.refined = number(tally.refined),
          .paged = number(tally.paged),
          .whole_head = number(tally.whole_head),
          .whole_layer = number(tally.whole_layer),
          .pages_in = number(tally.pages_in),
          .bytes_in = number(tally.bytes_in),
          .repair_cache_hits = number(tally.repair_hits),
          .pages_not_backed = number(tally.pages_not_backed)};
}

}  // namespace

void CertificateTally::add(const kv::SequenceMeter& step, bool backed) {
  kv::add(sum_.gate, step.gate);
  backed_ = backed_ && backed;
  for (int phase = 0; phase < kv::kNumPhases; ++phase) {
    add_counts(sum_.cells[phase], step.cells[phase]);
    take_worse(sum_.worst[phase], step.worst[phase]);
    take_worse(sum_.worst_value[phase], step.worst_value[phase]);
  }
}

CertificateReport CertificateTally::report(const Request& request, const CertificateRules& rules) const {
  const auto num_prompt = static_cast<int32_t>(request.prompt.size());
  CertificateReport report;
  report.pool = rules.pool;
  report.radius = rules.radius;
  report.bound = rules.bound;
  report.guarantee = rules.guarantee;
  report.policy = policy_name(policy_of(request, rules));
  report.tau = request.certificate.tau.value_or(rules.tau);
  report.tau_v = rules.tau_v;
  report.delta = request.certificate.delta.value_or(rules.delta);
  report.decode = cells_of(sum_.cells[kDecode]);
  report.decode.exact += exact_decode_cells_;
  report.prefill = cells_of(sum_.cells[kPrefill]);
  report.prefill_stride = rules.prefill_stride;
  report.worst = worst_of(sum_.worst[kDecode], num_prompt);
  report.worst_value = worst_of(sum_.worst_value[kDecode], num_prompt);
  report.gate = gate_of(sum_.gate);
  if (rules.has_backing) report.backing = backed_ ? "complete" : "partial";
  report.certified = rules.guarantee != "none" && report.decode.conditional == 0 && report.decode.risk_ranked == 0;
  return report;
}

}  // namespace assay
