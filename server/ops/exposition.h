// Metric families -> text that Prometheus reads, in its classic format or as OpenMetrics. Pure functions.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace assay {

// `more`: samples that are text already, from the functions below.
std::string exposition_text(const std::vector<prometheus::MetricFamily>& families, const std::string& more, bool openmetrics);

// Parts of the text, for families too large to be built as objects first.
std::string family_header(const std::string& name, const std::string& help, prometheus::MetricType type, bool openmetrics);
std::string labels_text(const std::vector<prometheus::ClientMetric::Label>& labels, const std::string& extra = "");
std::string number_text(double value);

}  // namespace assay
