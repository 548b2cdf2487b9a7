// What the gate, its backing store and the audit did -> metric families. Pure functions.
#pragma once

#include <vector>

#include <prometheus/metric_family.h>

#include "engine/api/gate.h"

namespace assay {

// Empty for pools that need no gate.
std::vector<prometheus::MetricFamily> gate_families(const GateStats& stats, bool has_meter);

}  // namespace assay
