// Our metric names and the names vLLM has for the same numbers.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace assay {

// Adds label model_name to every family of ours (assay_...), and after them a copy under each name of vLLM's, with label
// engine="0". Families that are not ours stay as they are.
void add_aliases(const std::string& model_name, std::vector<prometheus::MetricFamily>& families);

}  // namespace assay
