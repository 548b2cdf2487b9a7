// Rotary frequencies of a model, computed once at load.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/rope_config.h"

namespace assay {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [head_dim / 2], radians per position
  float scale = 1.0f;           // of cos and sin
};

// `max_model_len`: contexts this engine serves; decides the frequencies of the dynamic kind (docs/adr/0006).
RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t head_dim, int64_t max_position_embeddings,
                                 int64_t max_model_len);

// The longest context the model claims to serve: max_position_embeddings, stretched by the kinds whose field states the
// unstretched length.
int64_t rope_context_length(const RopeConfig& rope, int64_t max_position_embeddings);

}  // namespace assay
