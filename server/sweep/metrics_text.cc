#include "server/sweep/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace assay::sweep {
namespace {

struct Sample {
  std::string_view name;
  double value = 0.0;
};

std::optional<double> parse_value(std::string_view text) {
  double value = 0.0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// name{labels} value [timestamp]; quoted label values may hold '}' and escaped quotes.
std::optional<Sample> parse_sample(std::string_view line) {
  const size_t name_end = line.find_first_of("{ \t");
  if (name_end == 0 || name_end == std::string_view::npos || line.front() == '#') return std::nullopt;
  size_t at = name_end;
  if (line[at] == '{') {
    bool quoted = false;
    for (++at; at < line.size() && (quoted || line[at] != '}'); ++at) {
      if (quoted && line[at] == '\\') {
        ++at;
      } else if (line[at] == '"') {
        quoted = !quoted;
      }
    }
    if (at >= line.size()) return std::nullopt;
    ++at;
  }
  const size_t begin = line.find_first_not_of(" \t", at);
  if (begin == std::string_view::npos) return std::nullopt;
  const size_t end = line.find_first_of(" \t\r", begin);
  const std::optional<double> value =
      parse_value(line.substr(begin, end == std::string_view::npos ? end : end - begin));
  if (!value) return std::nullopt;
  return Sample{line.substr(0, name_end), *value};
}

bool is_counter(std::string_view name) {
  for (const char* prefix : {"process_", "python_", "go_", "http_"}) {
    if (name.starts_with(prefix)) return false;
  }
  return name.ends_with("_total") || name.ends_with("_sum") || name.ends_with("_count");
}

}  // namespace

MetricsSnapshot parse_metrics(std::string_view text) {
  MetricsSnapshot snapshot;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::optional<Sample> sample = parse_sample(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!sample) continue;
    const std::string name(sample->name);
    if (is_counter(name)) snapshot.counters[name] += sample->value;
    if (name.starts_with("assay_meter_") && name.ends_with("worst")) {
      const auto [entry, added] = snapshot.worst.emplace(name, sample->value);
      if (!added) entry->second = std::max(entry->second, sample->value);
    }
  }
  return snapshot;
}

std::map<std::string, double> counter_changes(const MetricsSnapshot& before, const MetricsSnapshot& after) {
  std::map<std::string, double> changes;
  for (const auto& [name, value] : after.counters) {
    const auto earlier = before.counters.find(name);
    const double change = value - (earlier == before.counters.end() ? 0.0 : earlier->second);
    if (change != 0.0) changes[name] = change;
  }
  return changes;
}

}  // namespace assay::sweep
