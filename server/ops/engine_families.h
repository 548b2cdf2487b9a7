// The engine's and the process's plain numbers -> metric families. Pure functions.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "engine/api/config.h"
#include "engine/api/model_info.h"
#include "engine/api/stats.h"
#include "server/ops/process_stats.h"

namespace assay {

std::vector<prometheus::MetricFamily> engine_families(const EngineStats& stats, const PoolInfo& pool,
                                                      const EngineConfig& config);
std::vector<prometheus::MetricFamily> process_families(const ProcessStats& stats);

}  // namespace assay
