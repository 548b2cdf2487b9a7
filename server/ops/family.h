// Short ways to make metric families. Pure functions.
#pragma once

#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

namespace assay {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

inline prometheus::MetricFamily family(prometheus::MetricType type, const char* name, const char* help) {
  return {name, help, type, {}};
}

// Another sample of a counter or gauge.
inline void add_sample(prometheus::MetricFamily& family, double value, MetricLabels labels = {}) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  const bool counter = family.type == prometheus::MetricType::Counter;
  (counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

inline prometheus::MetricFamily single(prometheus::MetricType type, const char* name, const char* help, double value) {
  prometheus::MetricFamily result = family(type, name, help);
  add_sample(result, value);
  return result;
}

}  // namespace assay
