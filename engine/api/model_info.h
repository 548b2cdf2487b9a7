// What the server may know of the loaded model and its cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct ModelInfo {
  std::string architecture;  // as in config.json, e.g. "LlamaForCausalLM"
  std::string dtype;         // of the stored weights: bfloat16 | float16 | float32
  std::string device;        // e.g. "cpu (16 threads, AVX-512)"
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;
  int32_t vocab_size = 0;
  int32_t max_model_len = 0;  // tokens, prompt + generated
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t hidden_size = 0;
  std::vector<int32_t> eos_token_ids;  // union of config.json and generation_config.json
  // Sampling defaults that generation_config.json states; a request's own fields win.
  struct SamplingDefaults {
    float temperature = 1.0f, top_p = 1.0f, min_p = 0.0f, repetition_penalty = 1.0f;
    int32_t top_k = 0;
  } sampling_defaults;
};

struct PoolInfo {
  std::string pool;            // exact, ...
  std::string dtype;           // of what a page stores
  int32_t block_size = 0;      // tokens per page
  int64_t num_pages = 0;
  int64_t bytes_per_page = 0;  // all layers, K and V
  int64_t side_bytes_per_page = 0;  // beside them, all layers
  int32_t bytes_per_token_head = 0;  // K and V of one token, one KV head, one layer
  std::string granularity = "none";  // of the scales: none, token, group, channel, tensor
  std::string scale_source = "none";  // none, row (from the row itself), calibration
  bool has_backing = false;  // exact rows beside it, in host memory

  // Every pool but `exact` serves rows that differ from the exact ones, and meters what that can do.
  bool has_meter() const { return pool != "exact"; }
};

}  // namespace assay
