// Calibration on a text of the operator's own, and what pools' meters say about that text.
//
// Threads: functions that load the model and return; one caller. Errors: those of Engine::create; InvalidArgument where
// the text is too short; PermissionDenied where the model's folder may not be written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/api/model_info.h"

namespace assay {

struct CalibrationSummary {
  std::string file;  // what was written
  int64_t num_tokens = 0;
  double seconds = 0;
  int32_t num_layers = 0, num_kv_heads = 0, head_dim = 0;
  // How much of the keys' energy the most energetic rotary pairs of a head hold, over all (layer, KV head).
  struct EnergyShare {
    int32_t pairs = 0;
    double median = 0, largest = 0;
  };
  std::vector<EnergyShare> energy;
};

// A pass over config.calibration_tokens, written beside the model as the file that every later start with this model
// uses.
absl::StatusOr<CalibrationSummary> calibrate_model(const EngineConfig& config);

// One pool's meter over a text, every token given. A cell is one (layer, query head) at a metered position; each is
// computed as in decoding: all earlier rows are read as stored.
struct MeterScores {
  PoolInfo pool;
  int32_t num_layers = 0, num_heads = 0;  // query heads
  int64_t positions = 0;                  // metered
  // Ascending, one number a cell: the bound before it is cut at 1 (infinite where it left float), and the value bound.
  std::vector<double> raw, value;
};

struct ScoreOptions {
  int64_t context = 2048;       // the text goes through the model in pieces of so many tokens
  int32_t stride = 32;          // metered are the positions divisible by it
  int32_t answer_tokens = 256;  // over which a request's kv_delta is spread, as for a request with so many max_tokens
  std::function<void(int64_t done, int64_t total)> progress;  // tokens; may be empty
};

// Calibrated by the files beside the model where there are any.
absl::StatusOr<MeterScores> score_meter(const EngineConfig& config, const std::vector<int32_t>& tokens,
                                        const ScoreOptions& options);

}  // namespace assay
