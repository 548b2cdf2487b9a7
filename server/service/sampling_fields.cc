#include "server/service/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>

#include "server/service/status.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxStopBytes = 4096;  // together; each choice keeps an automaton of them
constexpr double kMaxLogitBias = 100.0;

std::vector<std::pair<int32_t, float>> parse_logit_bias(Fields& fields) {
  std::vector<std::pair<int32_t, float>> biases;
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return biases;
  for (const auto& [key, value] : object->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error == std::errc::result_out_of_range && end == key.data() + key.size()) {
      fields.fail("logit_bias", fmt::format("logit_bias: token id {} is out of vocabulary", key.substr(0, 64)));
      return biases;
    }
    if (error != std::errc() || end != key.data() + key.size()) {
      fields.fail("logit_bias", fmt::format("logit_bias: the key \"{}\" is not a token id", key.substr(0, 64)));
      return biases;
    }
    if (!value.is_number() || !(value.get<double>() >= -kMaxLogitBias && value.get<double>() <= kMaxLogitBias)) {
      fields.fail("logit_bias", fmt::format("logit_bias: the value of {} must be a number from -100 to 100", id));
      return biases;
    }
    biases.emplace_back(id, value.get<float>());
  }
  return biases;
}

}  // namespace

SamplingFields parse_sampling(Fields& fields) {
  SamplingFields sampling;
  sampling.temperature = fields.number("temperature", {0.0, 2.0});
  sampling.top_p = fields.number("top_p", {0.0, 1.0, true});
  sampling.min_p = fields.number("min_p", {0.0, 1.0});
  sampling.repetition_penalty = fields.number("repetition_penalty", {0.01, 100.0});
  sampling.presence_penalty = fields.number("presence_penalty", {-2.0, 2.0});
  sampling.frequency_penalty = fields.number("frequency_penalty", {-2.0, 2.0});
  if (auto top_k = fields.integer("top_k", -1, INT32_MAX)) sampling.top_k = std::max<int32_t>(0, static_cast<int32_t>(*top_k));
  sampling.seed = fields.seed("seed");
  sampling.logit_bias = parse_logit_bias(fields);
  if (auto tokens = fields.integer("max_tokens", 0, INT32_MAX)) sampling.max_tokens = static_cast<int32_t>(*tokens);
  sampling.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, INT32_MAX).value_or(0));
  sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  sampling.stop_token_ids = fields.token_ids("stop_token_ids");
  return sampling;
}

std::vector<std::string> parse_stop(Fields& fields) {
  std::vector<std::string> stop = fields.strings("stop");
  size_t bytes = 0;
  for (const std::string& text : stop) {
    if (text.empty()) fields.fail("stop", "stop must not hold an empty string");
    bytes += text.size();
  }
  if (bytes > kMaxStopBytes) fields.fail("stop", fmt::format("stop: the strings together are above {} bytes", kMaxStopBytes));
  return stop;
}

std::optional<CertificateOptions> parse_certificate(Fields& fields) {
  const Json* object = fields.object("certificate");
  if (object == nullptr) return std::nullopt;
  CertificateOptions request;
  Fields inner(*object, "certificate.");
  request.report = inner.boolean("report").value_or(true);
  request.tau = inner.number("tau", {});
  request.delta = inner.number("delta", {});
  const std::string policy = inner.string("policy").value_or("");
  if (policy == "observe") {
    request.policy = CertificateOptions::Policy::kObserve;
  } else if (policy == "repair") {
    request.policy = CertificateOptions::Policy::kRepair;
  } else if (policy == "exact") {
    request.policy = CertificateOptions::Policy::kExact;
  } else if (inner.find("policy") != nullptr) {
    inner.fail("policy", "certificate.policy must be observe, repair or exact");
  }
  for (const auto& [key, value] : object->items()) {
    if (key != "report" && key != "tau" && key != "delta" && key != "policy") {
      inner.fail(key, fmt::format("certificate.{} is not known; the keys are report, tau, delta and policy", key.substr(0, 64)));
    }
  }
  if (!inner.ok()) fields.fail(describe_error(inner.status()).param, std::string(inner.status().message()));
  return request;
}

}  // namespace assay
