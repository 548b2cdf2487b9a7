// What the KV cache's meter has seen, as metrics. A large model has tens of thousands of series here, so the text is written
// directly: a scrape at 80 layers x 64 heads stays far below a tenth of a second.
//
// Threads: pure function. Errors: none.
#pragma once

#include <string>

#include "engine/api/meters.h"

namespace assay {

// Empty for an empty snapshot. `per_head`: one series for each layer and head; else one with layer="all", head="all".
std::string meter_text(const MeterSnapshot& snapshot, bool per_head, const std::string& model_name, bool openmetrics);

}  // namespace assay
