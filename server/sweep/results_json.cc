#include <cmath>
#include <nlohmann/json.hpp>

#include "server/sweep/results.h"

namespace assay::sweep {
namespace {

using json = nlohmann::ordered_json;

json number(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}
json number(const std::optional<double>& value) {
  return value ? number(*value) : json(nullptr);
}

json to_json(const Distribution& d) {
  return {{"count", d.count},           {"mean", number(d.mean)},   {"min", number(d.min)},
          {"median", number(d.median)}, {"p90", number(d.p90)},     {"p95", number(d.p95)},
          {"p99", number(d.p99)},       {"p99_9", number(d.p99_9)}, {"max", number(d.max)}};
}

json requests_json(const LevelSummary& s) {
  return {{"sent", s.sent},     {"completed", s.completed}, {"rejected", s.rejected},     {"timed_out", s.timed_out},
          {"failed", s.failed}, {"kinds", s.kinds},         {"examples", s.kind_examples}};
}

json anomalies_json(const LevelSummary& s) {
  return {{"resent", s.resent},
          {"missing_usage", s.missing_usage},
          {"missing_done", s.missing_done},
          {"empty_output", s.empty_output},
          {"token_mismatch", s.token_mismatch},
          {"wrong_length", s.wrong_length}};
}

json throughput_json(const LevelSummary& s) {
  return {{"output_tokens_per_s", s.output_tokens_per_s},
          {"input_tokens_per_s", s.input_tokens_per_s},
          {"total_tokens_per_s", s.output_tokens_per_s + s.input_tokens_per_s},
          {"whole_level_output_tokens_per_s", s.whole_output_tokens_per_s},
          {"offered_requests_per_s", number(s.offered_requests_per_s)},
          {"achieved_requests_per_s", s.achieved_requests_per_s}};
}

json certificates_json(const CertificateTally& c) {
  if (c.received == 0) return nullptr;
  return {{"received", c.received},
          {"certified", c.certified},
          {"metered_cells", c.metered_cells},
          {"certified_cells", c.certified_cells},
          {"worst_tv", c.worst_tv}};
}

json level_json(const LevelResult& level) {
  const LevelSummary& s = level.summary;
  json out;
  out["level"] = level_name(level);
  out["concurrency"] = level.concurrency > 0 ? json(level.concurrency) : json(nullptr);
  out["request_rate"] = number(level.request_rate);
  out["requests"] = requests_json(s);
  out["anomalies"] = anomalies_json(s);
  out["duration_s"] = s.duration_s;
  out["steady_window"] = {
      {"begin_s", s.window.begin_s}, {"end_s", s.window.end_s}, {"max_in_flight", s.window.in_flight}};
  out["tokens"] = {
      {"input", s.input_tokens}, {"output", s.output_tokens}, {"cached", s.cached_tokens}, {"chunks", s.chunks}};
  out["throughput"] = throughput_json(s);
  out["goodput"] = s.goodput_requests_per_s
                       ? json{{"good_requests", s.good}, {"requests_per_s", *s.goodput_requests_per_s}}
                       : json(nullptr);
  out["ttft_ms"] = to_json(s.ttft_ms);
  out["tpot_ms"] = to_json(s.tpot_ms);
  out["itl_ms"] = to_json(s.itl_ms);
  out["e2el_ms"] = to_json(s.e2el_ms);
  out["send_delay_ms"] = to_json(s.send_delay_ms);
  out["certificates"] = certificates_json(s.certificate);
  out["client"] = {{"cpu_share", level.client.cpu_share},
                   {"lag_ms", to_json(level.client.lag_ms)},
                   {"bottleneck", level.client.bottleneck()}};
  out["server_metrics_change"] = level.metrics_change;
  out["server_meter_worst"] = level.meter_worst;
  out["warnings"] = level_warnings(level);
  return out;
}

json config_json(const SweepOptions& o) {
  return {{"url", o.url},
          {"grpc", o.grpc_address},
          {"endpoint", o.chat ? "chat" : "completions"},
          {"input_tokens", o.input_tokens},
          {"output_tokens", o.output_tokens},
          {"shared_prefix_tokens", o.shared_prefix_tokens},
          {"dataset", o.dataset_file},
          {"prompt_file", o.prompt_file},
          {"requests_per_level", o.requests_per_level},
          {"seconds", o.seconds},
          {"burstiness", o.burstiness},
          {"warmup", o.warmup},
          {"timeout_s", o.timeout_s},
          {"seed", o.seed},
          {"openai_fields_only", o.openai_fields_only},
          {"certificate", o.certificate},
          {"goodput_ms",
           {{"ttft", number(o.goodput.ttft_ms)},
            {"tpot", number(o.goodput.tpot_ms)},
            {"e2el", number(o.goodput.e2el_ms)}}}};
}

json parsed_or_null(const std::string& text) {
  return text.empty() ? json(nullptr) : json::parse(text, nullptr, false);
}

}  // namespace

json to_json(const RunResult& run) {
  json out;
  out["tool"] = "assay sweep";
  out["format"] = 1;
  out["label"] = run.label();
  out["started_at"] = run.started_at;
  out["model"] = run.model;
  out["config"] = config_json(run.options);
  out["prompt_method"] = run.prompt_method;
  out["server"] = {{"version", parsed_or_null(run.server.version_json)},
                   {"server_info", parsed_or_null(run.server.server_info_json)},
                   {"notes", run.server.notes}};
  out["notes"] = run.notes;
  out["levels"] = json::array();
  for (const LevelResult& level : run.levels) out["levels"].push_back(level_json(level));
  return out;
}

}  // namespace assay::sweep
