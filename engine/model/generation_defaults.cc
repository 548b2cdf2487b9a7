#include "engine/model/generation_defaults.h"

#include <filesystem>

#include "engine/model/json_fields.h"
#include "engine/weights/mapped_file.h"
#include "engine/weights/strict_json.h"
#include "nlohmann/json.hpp"

namespace assay {

absl::StatusOr<GenerationDefaults> load_generation_defaults(const std::string& folder) {
  GenerationDefaults defaults;
  const std::string path = (std::filesystem::path(folder) / "generation_config.json").string();
  absl::StatusOr<std::string> text = read_text_file(path, 4 << 20);
  if (absl::IsNotFound(text.status())) return defaults;
  if (!text.ok()) return text.status();
  const absl::StatusOr<nlohmann::json> object = parse_json_object(*text, path);
  if (!object.ok()) return object.status();
  JsonFields fields(*object, path);
  const auto number = [&](const char* name, float otherwise, double min, double max) {
    return static_cast<float>(fields.number(name, otherwise, min, max));
  };
  defaults.eos_token_ids = fields.token_ids("eos_token_id");
  ModelInfo::SamplingDefaults& sampling = defaults.sampling;
  sampling.temperature = number("temperature", sampling.temperature, 0.0, 100.0);
  sampling.top_p = number("top_p", sampling.top_p, 1e-6, 1.0);
  sampling.min_p = number("min_p", sampling.min_p, 0.0, 1.0);
  sampling.repetition_penalty = number("repetition_penalty", sampling.repetition_penalty, 1e-3, 1e3);
  sampling.top_k = static_cast<int32_t>(fields.integer("top_k", sampling.top_k, 0, INT32_MAX));
  if (!fields.status().ok()) return fields.status();
  return defaults;
}

}  // namespace assay
