#include "server/ops/exposition.h"

#include <fmt/format.h>

#include <cmath>

namespace assay {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

std::string escape(const std::string& text, bool quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (c == '"' && quotes) {
      escaped += "\\\"";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

namespace {

// Bucket bounds are labels, and OpenMetrics wants them in one spelling: 1.0, not 1.
std::string bound_text(double value) {
  std::string text = number_text(value);
  if (text.find_first_of(".eIN") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string labels_text(const std::vector<ClientMetric::Label>& labels, const std::string& extra) {
  std::string text;
  for (const auto& label : labels) text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", label.name, escape(label.value, true));
  if (!extra.empty()) text += (text.empty() ? "" : ",") + extra;
  return text.empty() ? "" : "{" + text + "}";
}

namespace {

void append_histogram(const MetricFamily& family, const ClientMetric& metric, std::string& out) {
  for (const auto& bucket : metric.histogram.bucket) {
    out += fmt::format("{}_bucket{} {}\n", family.name,
                       labels_text(metric.label, fmt::format("le=\"{}\"", bound_text(bucket.upper_bound))),
                       bucket.cumulative_count);
  }
  const std::string labels = labels_text(metric.label);
  out += fmt::format("{}_sum{} {}\n", family.name, labels, number_text(metric.histogram.sample_sum));
  out += fmt::format("{}_count{} {}\n", family.name, labels, metric.histogram.sample_count);
}

const char* type_text(MetricType type) {
  switch (type) {
    case MetricType::Counter: return "counter";
    case MetricType::Gauge: return "gauge";
    case MetricType::Histogram: return "histogram";
    default: return "untyped";
  }
}

void append_family(const MetricFamily& family, bool openmetrics, std::string& out) {
  out += family_header(family.name, family.help, family.type, openmetrics);
  for (const ClientMetric& metric : family.metric) {
    if (family.type == MetricType::Histogram) {
      append_histogram(family, metric, out);
    } else {
      const double value = family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
      out += fmt::format("{}{} {}\n", family.name, labels_text(metric.label), number_text(value));
    }
  }
}

}  // namespace

std::string family_header(const std::string& name, const std::string& help, MetricType type, bool openmetrics) {
  std::string family = name;
  // OpenMetrics names a counter's family without the suffix of its samples.
  if (openmetrics && type == MetricType::Counter && family.ends_with("_total")) family.resize(family.size() - 6);
  return fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, escape(help, openmetrics), family, type_text(type));
}

std::string exposition_text(const std::vector<MetricFamily>& families, const std::string& more, bool openmetrics) {
  std::string out;
  for (const MetricFamily& family : families) {
    if (!family.metric.empty()) append_family(family, openmetrics, out);
  }
  out += more;
  if (openmetrics) out += "# EOF\n";
  return out;
}

}  // namespace assay
