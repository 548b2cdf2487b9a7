// generation_config.json: end-of-sequence ids beside those of config.json, and the sampling the model's makers suggest.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/model_info.h"

namespace assay {

struct GenerationDefaults {
  std::vector<int32_t> eos_token_ids;
  ModelInfo::SamplingDefaults sampling;
};

// Defaults where the folder has no such file; InvalidArgument, naming the field, where it is wrong.
absl::StatusOr<GenerationDefaults> load_generation_defaults(const std::string& folder);

}  // namespace assay
