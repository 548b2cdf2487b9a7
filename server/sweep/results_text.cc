#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "server/sweep/results.h"

namespace assay::sweep {
namespace {

constexpr double kShortWindowShare = 0.5;

std::string cell(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::fabs(value);
  return size >= 1000.0  ? fmt::format("{:.0f}", value)
         : size >= 100.0 ? fmt::format("{:.1f}", value)
                         : fmt::format("{:.2f}", value);
}

std::string cell(const std::optional<double>& value) {
  return value ? cell(*value) : "-";
}

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, right-aligned.
std::string align(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::vector<std::pair<std::string, const Distribution*>> latencies(const LevelSummary& s) {
  return {{"ttft", &s.ttft_ms}, {"tpot", &s.tpot_ms}, {"itl", &s.itl_ms}, {"e2el", &s.e2el_ms}};
}

std::string load_table(const RunResult& run) {
  std::vector<Row> rows{{"level", "done", "failed", "rejected", "timeout", "offered/s", "done/s", "good/s", "in tok/s",
                         "out tok/s", "tok/s total", "client cpu", "!"}};
  for (const LevelResult& level : run.levels) {
    const LevelSummary& s = level.summary;
    rows.push_back({level_name(level), std::to_string(s.completed), std::to_string(s.failed),
                    std::to_string(s.rejected), std::to_string(s.timed_out), cell(s.offered_requests_per_s),
                    cell(s.achieved_requests_per_s), cell(s.goodput_requests_per_s), cell(s.input_tokens_per_s),
                    cell(s.output_tokens_per_s), cell(s.input_tokens_per_s + s.output_tokens_per_s),
                    fmt::format("{:.0f} %", level.client.cpu_share * 100.0), level_warnings(level).empty() ? "" : "!"});
  }
  return align(rows);
}

std::string latency_table(const RunResult& run) {
  std::vector<Row> rows{{"level", "ms", "count", "mean", "median", "p90", "p95", "p99", "p99.9"}};
  for (const LevelResult& level : run.levels) {
    std::string name = level_name(level);
    for (const auto& [metric, d] : latencies(level.summary)) {
      rows.push_back({std::exchange(name, ""), metric, std::to_string(d->count), cell(d->mean), cell(d->median),
                      cell(d->p90), cell(d->p95), cell(d->p99), cell(d->p99_9)});
    }
  }
  return align(rows);
}

std::string certificate_lines(const RunResult& run) {
  std::string text;
  for (const LevelResult& level : run.levels) {
    const CertificateTally& c = level.summary.certificate;
    if (c.received == 0) continue;
    text += fmt::format("level {}: {} of {} certificates hold; {} of {} metered cells certified; worst bound {:.4g}\n",
                        level_name(level), c.certified, c.received, c.certified_cells, c.metered_cells, c.worst_tv);
  }
  return text;
}

std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "";
}

// The names under which servers count the tokens that they generated.
std::optional<double> server_generated_tokens(const LevelResult& level) {
  for (const char* name :
       {"vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"}) {
    const auto found = level.metrics_change.find(name);
    if (found != level.metrics_change.end()) return found->second;
  }
  return std::nullopt;
}

void warn_if(int64_t count, const char* what, std::vector<std::string>* warnings) {
  if (count > 0) warnings->push_back(fmt::format("{} {}", count, what));
}

}  // namespace

std::string level_name(const LevelResult& level) {
  return level.request_rate ? fmt::format("{:g}/s", *level.request_rate) : std::to_string(level.concurrency);
}

std::vector<std::string> level_warnings(const LevelResult& level) {
  const LevelSummary& s = level.summary;
  std::vector<std::string> warnings;
  for (const auto& [kind, count] : s.kinds) {
    if (kind == "completed") continue;
    const auto example = s.kind_examples.find(kind);
    const std::string detail =
        example == s.kind_examples.end() || example->second.empty() ? "" : ": " + example->second;
    warnings.push_back(fmt::format("{} x {}{}", count, kind, detail));
  }
  if (!level.client.bottleneck().empty()) warnings.push_back("client bottleneck: " + level.client.bottleneck());
  warn_if(s.resent, "sent again on a fresh connection: the server had closed the kept-alive one", &warnings);
  warn_if(s.missing_usage, "completed without usage: their tokens are counted from the chunks", &warnings);
  warn_if(s.missing_done, "completed without [DONE]", &warnings);
  warn_if(s.empty_output, "completed without any text: they have no TTFT", &warnings);
  warn_if(s.token_mismatch, "with a usage that contradicts what was streamed", &warnings);
  warn_if(s.wrong_length, "of another length than was asked for", &warnings);
  if (s.completed > 0 && s.window.length_s() < kShortWindowShare * s.duration_s) {
    warnings.push_back(fmt::format("the steady window is only {:.0f} % of the level: use more requests",
                                   100.0 * s.window.length_s() / s.duration_s));
  }
  const std::optional<double> counted = server_generated_tokens(level);
  if (counted && s.completed == s.sent && *counted != static_cast<double>(s.output_tokens)) {
    warnings.push_back(
        fmt::format("the server counted {:.0f} generated tokens, the client {}", *counted, s.output_tokens));
  }
  return warnings;
}

std::string to_csv(const RunResult& run) {
  std::string text =
      "level,concurrency,request_rate,sent,completed,rejected,timed_out,failed,duration_s,window_s,"
      "input_tokens,output_tokens,cached_tokens,input_tokens_per_s,output_tokens_per_s,"
      "whole_level_output_tokens_per_s,offered_requests_per_s,achieved_requests_per_s,"
      "goodput_requests_per_s,client_cpu_share,client_bottleneck";
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* name : {"mean", "median", "p90", "p95", "p99", "p99_9"})
      text += fmt::format(",{}_{}_ms", metric, name);
  }
  for (const LevelResult& level : run.levels) {
    const LevelSummary& s = level.summary;
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    text += fmt::format("\n{},{},{},{},{},{},{},{},{},{},{},{},{}", level_name(level), level.concurrency,
                        csv_number(level.request_rate.value_or(kNone)), s.sent, s.completed, s.rejected, s.timed_out,
                        s.failed, csv_number(s.duration_s), csv_number(s.window.length_s()), s.input_tokens,
                        s.output_tokens, s.cached_tokens);
    for (const double value : {s.input_tokens_per_s, s.output_tokens_per_s, s.whole_output_tokens_per_s,
                               s.offered_requests_per_s.value_or(kNone), s.achieved_requests_per_s,
                               s.goodput_requests_per_s.value_or(kNone), level.client.cpu_share}) {
      text += "," + csv_number(value);
    }
    text += level.client.bottleneck().empty() ? ",0" : ",1";
    for (const auto& [metric, d] : latencies(s)) {
      for (const double value : {d->mean, d->median, d->p90, d->p95, d->p99, d->p99_9}) text += "," + csv_number(value);
    }
  }
  return text + "\n";
}

std::string to_table(const RunResult& run) {
  std::string text =
      fmt::format("{} at {}\n\n{}\n{}", run.label(), run.options.url, load_table(run), latency_table(run));
  const std::string certificates = certificate_lines(run);
  if (!certificates.empty()) text += "\n" + certificates;
  std::string notes;
  for (const std::string& note : run.notes) notes += "note: " + note + "\n";
  for (const std::string& note : run.server.notes) notes += "note: server has " + note + "\n";
  for (const LevelResult& level : run.levels) {
    for (const std::string& warning : level_warnings(level))
      notes += fmt::format("! level {}: {}\n", level_name(level), warning);
  }
  return notes.empty() ? text : text + "\n" + notes;
}

absl::Status write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::UnavailableError("cannot write " + path + ": " + std::strerror(errno));
  return absl::OkStatus();
}

absl::StatusOr<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read " + path + ": " + std::strerror(errno));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status write_results(const RunResult& run, const std::string& folder) {
  const std::string document = to_json(run).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (absl::Status status = write_file(folder + "/results.json", document + "\n"); !status.ok()) return status;
  return write_file(folder + "/results.csv", to_csv(run));
}

}  // namespace assay::sweep
