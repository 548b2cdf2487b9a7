// Metric families -> text that Prometheus reads, in its classic format or as OpenMetrics.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace assay {

std::string exposition_text(const std::vector<prometheus::MetricFamily>& families, bool openmetrics);

}  // namespace assay
