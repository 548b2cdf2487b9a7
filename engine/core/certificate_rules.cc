#include "engine/core/certificate_rules.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "kernels/kv/radius.h"

namespace assay {
namespace {

constexpr int32_t kSampleStride = 64;

// Shares of delta. Most of it goes to decode steps, which is what a certificate is about: kappa^2 grows by 2 ln(1 /
// 0.8) there, half a percent of the radius.
constexpr double kDecodeShare = 0.8, kPrefillShare = 0.1, kAgainShare = 0.1;

int32_t prefill_stride(const std::string& prefill_meter) {
  if (prefill_meter == "all") return 1;
  return prefill_meter == "sample" ? kSampleStride : 0;
}

std::string guarantee_of(const EngineConfig& config) {
  if (config.kv_gate == "off") return "none";
  return config.kv_radius == "witness" ? "deterministic" : "conditional";
}

absl::Status check_tightens(const char* field, std::optional<double> value, double limit) {
  if (!value || (*value > 0.0 && *value <= limit)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} must be above 0 and at most the server's own {} (a request may only tighten it), got {}", field,
                  limit, *value));
}

float float_down(double value) {
  const float nearest = static_cast<float>(value);
  return static_cast<double>(nearest) > value ? std::nextafter(nearest, 0.0f) : nearest;
}

}  // namespace

CertificateRules certificate_rules(const EngineConfig& config, const ModelInfo& model, const PoolInfo& pool) {
  CertificateRules rules;
  rules.has_meter = pool.has_meter();
  rules.has_backing = pool.has_backing;
  if (!rules.has_meter) rules.policy = CertificateOptions::Policy::kExact;  // what an exact pool does by itself
  if (rules.has_meter && config.kv_gate == "repair") rules.policy = CertificateOptions::Policy::kRepair;
  rules.pool = pool.pool;
  rules.tau = config.kv_tau;
  rules.tau_v = config.kv_tau_v;
  rules.delta = config.kv_delta;
  rules.cells_per_query = int64_t{model.num_layers} * model.num_heads;
  if (!rules.has_meter) return rules;
  rules.radius = config.kv_radius;
  rules.bound = config.kv_bound;
  rules.guarantee = guarantee_of(config);
  rules.prefill_stride = config.kv_gate == "off" ? 0 : prefill_stride(config.kv_prefill_meter);
  return rules;
}

absl::Status check_certificate(const CertificateOptions& options, const CertificateRules& rules) {
  using Policy = CertificateOptions::Policy;
  if (absl::Status status = check_tightens("certificate.tau", options.tau, rules.tau); !status.ok()) return status;
  if (absl::Status status = check_tightens("certificate.delta", options.delta, rules.delta); !status.ok())
    return status;
  const bool needs_rows = options.policy == Policy::kRepair || options.policy == Policy::kExact;
  if (!rules.has_meter || rules.has_backing || !needs_rows) return absl::OkStatus();
  const char* name = options.policy == Policy::kRepair ? "repair" : "exact";
  return absl::InvalidArgumentError(
      fmt::format("certificate.policy \"{}\" needs exact rows to read, and this server keeps none beside its {} pool "
                  "(kv_backing is none); \"observe\" is served",
                  name, rules.pool));
}

double local_delta(double delta, const Request& request, const CertificateRules& rules, const MeteredSlice& slice) {
  const double generated = std::max(request.sampling.max_tokens, 1),
               prompt = static_cast<double>(request.prompt.size());
  double share = slice.decode ? kDecodeShare : kPrefillShare;
  double positions = slice.decode ? generated : prompt;
  if (slice.preemptions > 0) {  // 1/2, 1/4, ... of what is set aside for computing everything again
    share = std::ldexp(kAgainShare, -std::min(slice.preemptions, 1000));
    positions = prompt + generated;
  }
  return delta * share / (static_cast<double>(rules.cells_per_query) * positions * request.num_sequences);
}

CertificateOptions::Policy policy_of(const Request& request, const CertificateRules& rules) {
  const CertificateOptions::Policy asked = request.certificate.policy;
  return asked == CertificateOptions::Policy::kServer ? rules.policy : asked;
}

kv::MeterThresholds meter_thresholds(const Request& request, const CertificateRules& rules, const MeteredSlice& slice) {
  kv::MeterThresholds thresholds;
  thresholds.tau = float_down(request.certificate.tau.value_or(rules.tau));
  thresholds.tau_v = float_down(rules.tau_v);
  thresholds.metered_stride = rules.prefill_stride;
  if (!rules.has_meter) return thresholds;
  const CertificateOptions::Policy policy = policy_of(request, rules);
  if (policy == CertificateOptions::Policy::kRepair) thresholds.policy = kv::GatePolicy::kRepair;
  if (policy == CertificateOptions::Policy::kExact) thresholds.policy = kv::GatePolicy::kExact;
  const double delta = request.certificate.delta.value_or(rules.delta);
  thresholds.kappa = kv::dither_kappa(std::max(slice.first_position, 1), local_delta(delta, request, rules, slice));
  return thresholds;
}

}  // namespace assay
