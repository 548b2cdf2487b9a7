// The rotary embedding as config.json describes it, in the classic spelling (`rope_theta`, `rope_scaling`) or the new
// one
// (`rope_parameters`). Both may be present if they say the same.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/json_fields.h"

namespace assay {

enum class RopeKind : uint8_t { kDefault, kLinear, kDynamic, kYarn, kLlama3 };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_max_position = 0;  // 0 = max_position_embeddings
  // YaRN
  std::optional<double> attention_factor{}, mscale{}, mscale_all_dim{};
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  // Llama 3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;

  bool operator==(const RopeConfig&) const = default;
};

// Problems go into `fields`.
RopeConfig read_rope_config(JsonFields& fields);

}  // namespace assay
