// What config.json says of a decoder, as plain values. Families differ in data only.
//
// Threads: values. Errors: InvalidArgument that names the file and the field; whatever cannot be computed here
// (quantised weights, sliding windows, other activations or architectures) is refused, never ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/rope_config.h"
#include "kernels/core/dtype.h"

namespace assay {

struct ModelConfig {
  std::string architecture;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  float rms_norm_eps = 1e-6f;
  int64_t max_position_embeddings = 0;
  RopeConfig rope;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tie_word_embeddings = false;
  std::optional<DType> declared_dtype;  // `dtype` or `torch_dtype`
  std::vector<int32_t> eos_token_ids;
};

// `text` is config.json, `where` its name for messages.
absl::StatusOr<ModelConfig> parse_model_config(std::string_view text, const std::string& where);

// FOLDER/config.json.
absl::StatusOr<ModelConfig> load_model_config(const std::string& folder);

}  // namespace assay
