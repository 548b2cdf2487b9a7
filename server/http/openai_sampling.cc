#include "server/http/openai_sampling.h"

#include <fmt/format.h>

#include <charconv>

#include "server/service/status.h"

namespace assay::http {
namespace {

constexpr size_t kMaxStopBytes = 4096;  // together; each choice keeps an automaton of them
constexpr double kMaxLogitBias = 100.0;

std::vector<std::pair<int32_t, float>> parse_logit_bias(Fields& fields) {
  std::vector<std::pair<int32_t, float>> biases;
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return biases;
  for (const auto& [key, value] : object->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
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

// Present and not one of the values that mean "no".
bool is_set(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_array() || value.is_object()) return !value.empty();
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return true;
}

void refuse(Fields& fields, const char* name, const std::string& reason) {
  fields.fail(name, fmt::format("{} is not supported here: {}", name, reason));
}

void refuse_response_format(Fields& fields) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return;
  const auto type = format->find("type");
  if (type != format->end() && type->is_string() && *type == "text") return;
  refuse(fields, "response_format", "this server does not constrain its output yet; the only type it takes is \"text\"");
}

void refuse_tool_choice(Fields& fields) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "none" || *choice == "auto") return;
  refuse(fields, "tool_choice", "this server does not call tools yet; it takes \"none\" and \"auto\"");
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

void refuse_unsupported(Fields& fields) {
  constexpr const char* kConstraints[] = {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                                          "structured_outputs", "grammar", "json_schema", "regex"};
  constexpr const char* kFeatures[] = {"tools", "functions", "suffix", "use_beam_search", "allowed_token_ids", "bad_words",
                                       "logits_processors", "prompt_embeds", "audio", "images"};
  for (const char* name : kConstraints) {
    const Json* value = fields.find(name);
    if (value != nullptr && is_set(*value)) refuse(fields, name, "this server does not constrain its output yet");
  }
  for (const char* name : kFeatures) {
    const Json* value = fields.find(name);
    if (value != nullptr && is_set(*value)) refuse(fields, name, "leave the field out");
  }
  refuse_response_format(fields);
  refuse_tool_choice(fields);
}

}  // namespace assay::http
