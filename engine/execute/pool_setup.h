// What a pool does to the rows of this model, from the settings and from calibration.
//
// Threads: one caller; the decoder must be idle. Errors: those of calibration.
#pragma once

#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/execute/kv_pool.h"
#include "engine/execute/resolve_config.h"
#include "engine/model/decoder_model.h"
#include "engine/model/model_config.h"
#include "kernels/device.h"

namespace assay {

absl::StatusOr<PoolTransform> make_pool_transform(const EngineConfig& config, const ModelConfig& model,
                                                  const CachePlan& cache, DecoderModel& decoder, Device& device);

}  // namespace assay
