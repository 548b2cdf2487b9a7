// The result of a run as a value, and its forms: results.json (also read back), results.csv, the printed table.
//
// Threads: values. Errors: writing and reading report the file and the reason.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sweep/client_load.h"
#include "server/sweep/options.h"
#include "server/sweep/server_snapshot.h"
#include "server/sweep/summary.h"

namespace assay::sweep {

struct LevelResult {
  int concurrency = 0;                 // in rate mode the cap, 0 = none
  std::optional<double> request_rate;  // asked for, rate mode
  LevelSummary summary;
  ClientLoad client;
  std::map<std::string, double> metrics_change;  // of the server's counters, warm-up left out
  std::map<std::string, double> meter_worst;     // assay_meter_*worst after the level
};

struct RunResult {
  SweepOptions options;
  std::string started_at;  // UTC, ISO 8601
  std::string model;
  std::string prompt_method;  // TokenCosts::method, "dataset" or "prompt file"
  ServerDescription server;
  std::vector<LevelResult> levels;
  std::vector<std::string> notes;

  std::string label() const { return options.label.empty() ? model : options.label; }
};

// Sentences about what makes the numbers of a level less than they seem; empty for a clean one.
std::vector<std::string> level_warnings(const LevelResult& level);

// "16" or "2.5/s".
std::string level_name(const LevelResult& level);

nlohmann::ordered_json to_json(const RunResult& run);
std::string to_csv(const RunResult& run);
std::string to_table(const RunResult& run);

// Replaces the file; creates its folder.
absl::Status write_file(const std::string& path, const std::string& text);
absl::StatusOr<std::string> read_file(const std::string& path);

// results.json and results.csv into a folder.
absl::Status write_results(const RunResult& run, const std::string& folder);

}  // namespace assay::sweep
