#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/calibrate/calibrate.h"
#include "server/eval/statistics.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTaus[] = {0.05, 0.1, 0.2, 0.3, 0.5};
constexpr double kQuantiles[] = {0.5, 0.9, 0.99, 0.999, 1.0};
constexpr double kPagesPerToken[] = {0.01, 0.1, 1.0, 10.0};

// Cells whose bound is at most tau.
Share coverage(const MeterScores& scores, double tau) {
  const auto end = std::upper_bound(scores.raw.begin(), scores.raw.end(), tau);
  return {end - scores.raw.begin(), static_cast<int64_t>(scores.raw.size())};
}

double cells_per_token(const MeterScores& scores) {
  return static_cast<double>(scores.num_layers) * scores.num_heads;
}

// The least tau at which `pages` cells of one generated token are over it. A cell over tau takes at least one page, in
// the median case exactly one.
double tau_of_budget(const MeterScores& scores, double pages) {
  return quantile(scores.raw, 1.0 - pages / cells_per_token(scores));
}

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json("inf");
}

Json suggestion_json(const Suggestion& suggestion) {
  Json json = {{"pool", suggestion.spec}};
  if (!suggestion.problem.empty()) {
    json["problem"] = suggestion.problem;
    return json;
  }
  const MeterScores& scores = suggestion.scores;
  json["bytes_per_token_head"] = scores.pool.bytes_per_token_head;
  json["positions"] = scores.positions;
  json["cells"] = scores.raw.size();
  for (double tau : kTaus) json["coverage"][fmt::format("{:g}", tau)] = coverage(scores, tau).value();
  for (double q : kQuantiles) json["raw"][fmt::format("{:g}", q)] = finite(quantile(scores.raw, q));
  for (double q : kQuantiles) json["value_bound"][fmt::format("{:g}", q)] = finite(quantile(scores.value, q));
  for (double pages : kPagesPerToken) {
    if (pages < cells_per_token(scores))
      json["tau_of_pages_per_token"][fmt::format("{:g}", pages)] = finite(tau_of_budget(scores, pages));
  }
  return json;
}

std::string summary_text(const CalibrationSummary& summary) {
  std::string text =
      fmt::format("{}: {} tokens, {} layers x {} KV heads of {}, {:.1f} s\n", summary.file, summary.num_tokens,
                  summary.num_layers, summary.num_kv_heads, summary.head_dim, summary.seconds);
  for (const CalibrationSummary::EnergyShare& share : summary.energy) {
    text += fmt::format(
        "  the {:>2} most energetic rotary pairs of a head hold {:.3f} of its keys' energy (median; {:.3f} at most)\n",
        share.pairs, share.median, share.largest);
  }
  return text;
}

size_t spec_width(const std::vector<Suggestion>& suggestions) {
  size_t width = 4;
  for (const Suggestion& suggestion : suggestions) width = std::max(width, suggestion.spec.size());
  return width;
}

// One line a pool; `cell` writes the columns.
template <class Cell>
std::string table(const std::vector<Suggestion>& suggestions, const std::string& title,
                  const std::vector<std::string>& columns, Cell cell) {
  const size_t width = spec_width(suggestions);
  std::string text = "\n" + title + "\n" + fmt::format("  {:<{}}", "pool", width);
  for (const std::string& column : columns) text += fmt::format(" {:>10}", column);
  text += "\n";
  for (const Suggestion& suggestion : suggestions) {
    text += fmt::format("  {:<{}}", suggestion.spec, width);
    if (suggestion.problem.empty()) {
      for (size_t i = 0; i < columns.size(); ++i) text += fmt::format(" {:>10}", cell(suggestion.scores, i));
    } else {
      text += " not available: " + suggestion.problem;
    }
    text += "\n";
  }
  return text;
}

template <size_t N>
std::vector<std::string> names(const char* prefix, const double (&values)[N]) {
  std::vector<std::string> texts;
  for (double value : values) texts.push_back(fmt::format("{}{:g}", prefix, value));
  return texts;
}

}  // namespace

std::string calibration_text_report(const CalibrationSummary& summary, const std::vector<Suggestion>& suggestions) {
  std::string text = summary_text(summary);
  if (suggestions.empty()) return text;
  text += table(suggestions, "Coverage: share of cells whose bound is at most tau, before any page-in",
                names("tau ", kTaus),
                [](const MeterScores& s, size_t i) { return fmt::format("{:.4f}", coverage(s, kTaus[i]).value()); });
  text += table(suggestions, "Raw scores: quantiles of the bound before it is cut at 1", names("q ", kQuantiles),
                [](const MeterScores& s, size_t i) { return fmt::format("{:.4g}", quantile(s.raw, kQuantiles[i])); });
  text +=
      table(suggestions, "tau that a budget of pages fetched per generated token affords (one page a cell over tau)",
            names("pages ", kPagesPerToken), [](const MeterScores& s, size_t i) {
              return kPagesPerToken[i] < cells_per_token(s) ? fmt::format("{:.4g}", tau_of_budget(s, kPagesPerToken[i]))
                                                            : "any";
            });
  return text;
}

std::string calibration_json_report(const CalibrationSummary& summary, const std::vector<Suggestion>& suggestions) {
  Json json = {{"file", summary.file}, {"tokens", summary.num_tokens}, {"seconds", summary.seconds}};
  for (const CalibrationSummary::EnergyShare& share : summary.energy) {
    json["energy"].push_back({{"pairs", share.pairs}, {"median", share.median}, {"largest", share.largest}});
  }
  for (const Suggestion& suggestion : suggestions) json["pools"].push_back(suggestion_json(suggestion));
  return json.dump(2) + "\n";
}

}  // namespace assay
