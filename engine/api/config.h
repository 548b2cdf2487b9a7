// Everything that decides what an engine is. Plain values with the defaults of docs/configuration.md; the server fills them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

struct EngineConfig {
  std::string model_dir;
  bool dummy_weights = false;  // --load-format dummy: seeded random weights from config.json alone
  std::string device = "auto";          // auto | cpu | cuda
  int32_t threads = 0;                  // CPU worker threads; 0 = all cores
  std::string kv_cache_dtype = "auto";  // auto (model dtype) | float32 | bfloat16 | float16
  std::string kv_pool = "exact";        // name in the pool registry (cache/pool)
  int32_t max_model_len = 0;            // tokens; 0 = the model's
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 0;   // per step; 0 = 2,048 on the CPU, 8,192 on CUDA
  int32_t block_size = 16;              // tokens per page, a multiple of 16
  int32_t max_num_queued_reqs = 1024;   // waiting sequences; over it submit is refused
  int64_t kv_cache_memory_bytes = 0;    // 0 = a share of the free memory, at most what max_num_seqs contexts can use
  bool enable_prefix_caching = true;
  std::optional<uint64_t> seed;         // of requests without one, and of dummy weights; none = from the system
  int32_t max_logprobs = 20;
};

}  // namespace assay
