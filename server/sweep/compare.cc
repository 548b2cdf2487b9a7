#include "server/sweep/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "server/sweep/results.h"

namespace assay::sweep {
namespace {

std::string value_and_ratio(double value, const FrontierPoint* base, double base_value) {
  if (!std::isfinite(value)) return "-";
  if (base == nullptr || !std::isfinite(base_value) || base_value <= 0.0) return fmt::format("{:.2f}", value);
  return fmt::format("{:.2f} ({:.2f}x)", value, value / base_value);
}

const FrontierPoint* find_level(const FrontierRun& run, const std::string& level) {
  const auto found =
      std::find_if(run.points.begin(), run.points.end(), [&](const auto& p) { return p.level == level; });
  return found == run.points.end() ? nullptr : &*found;
}

std::vector<std::string> all_levels(const std::vector<FrontierRun>& runs) {
  std::vector<std::string> levels;
  for (const FrontierRun& run : runs) {
    for (const FrontierPoint& point : run.points) {
      if (std::find(levels.begin(), levels.end(), point.level) == levels.end()) levels.push_back(point.level);
    }
  }
  return levels;
}

std::string row(const std::string& level, const FrontierRun& run, const FrontierPoint& p, const FrontierPoint* base) {
  const FrontierPoint none;
  const FrontierPoint& b = base == nullptr ? none : *base;
  return fmt::format("{:>8}  {:<24}  {:>20}  {:>18}  {:>18}  {:>18}  {:>18}\n", level, run.label,
                     value_and_ratio(p.output_tokens_per_s, base, b.output_tokens_per_s),
                     value_and_ratio(p.tpot_ms, base, b.tpot_ms), value_and_ratio(p.tpot_p99_ms, base, b.tpot_p99_ms),
                     value_and_ratio(p.ttft_ms, base, b.ttft_ms), value_and_ratio(p.ttft_p99_ms, base, b.ttft_p99_ms));
}

}  // namespace

absl::StatusOr<std::vector<FrontierRun>> load_runs(const std::vector<std::string>& files) {
  std::vector<FrontierRun> runs;
  std::set<std::string> labels;
  for (size_t i = 0; i < files.size(); ++i) {
    absl::StatusOr<std::string> text = read_file(files[i]);
    if (!text.ok()) return text.status();
    absl::StatusOr<FrontierRun> run = frontier_run(nlohmann::ordered_json::parse(*text, nullptr, false));
    if (!run.ok()) return absl::InvalidArgumentError(files[i] + ": " + std::string(run.status().message()));
    if (!labels.insert(run->label).second) run->label += fmt::format(" #{}", i + 1);
    runs.push_back(*std::move(run));
  }
  return runs;
}

std::string comparison_table(const std::vector<FrontierRun>& runs) {
  std::string table = fmt::format("{:>8}  {:<24}  {:>20}  {:>18}  {:>18}  {:>18}  {:>18}\n", "level", "run",
                                  "out tok/s", "TPOT median ms", "TPOT p99 ms", "TTFT median ms", "TTFT p99 ms");
  for (const std::string& level : all_levels(runs)) {
    const FrontierPoint* base = find_level(runs.front(), level);
    for (size_t i = 0; i < runs.size(); ++i) {
      const FrontierPoint* point = find_level(runs[i], level);
      if (point != nullptr) table += row(level, runs[i], *point, i == 0 ? nullptr : base);
    }
  }
  return table;
}

int run_compare(const CompareOptions& options) {
  const absl::StatusOr<std::vector<FrontierRun>> runs = load_runs(options.files);
  if (!runs.ok()) {
    std::fprintf(stderr, "assay sweep compare: %s\n", std::string(runs.status().message()).c_str());
    return 1;
  }
  std::fputs(comparison_table(*runs).c_str(), stdout);
  if (options.output_dir.empty()) return 0;
  const std::string path = options.output_dir + "/frontier.svg";
  if (const absl::Status status = write_file(path, draw_frontier(*runs)); !status.ok()) {
    std::fprintf(stderr, "assay sweep compare: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("\nfigure: %s\n", path.c_str());
  return 0;
}

}  // namespace assay::sweep
