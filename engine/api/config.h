// Everything that decides what an engine is. Plain values with the defaults of docs/configuration.md; the server fills them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

  // Pools with a meter (docs/certificate.md).
  std::string kv_radius = "witness";  // witness | dither | both
  std::string kv_bound = "best";      // best | f | e-form | tanh
  std::string kv_gate = "repair";     // off | observe | repair
  double kv_tau = 0.2;                // total variation
  double kv_tau_v = 0.05;             // of the value bound, relative to max |v|
  double kv_delta = 0.01;             // of the dither radius, per request
  bool kv_balance = true;
  bool kv_rotation = true;
  int32_t kv_outlier_pairs = 0;       // bypassed rotary pairs per (layer, KV head): 0, 4 or 16 for witcert
  std::string kv_dither_stream = "periodic";  // periodic | per-slot
  std::string kv_prefill_meter = "sample";    // off | sample | all
  std::string kv_telemetry = "heads";         // off | summary | heads
  std::string kv_backing = "host";            // host | none: exact rows in host memory, which repair and audit need
  int64_t kv_backing_memory_bytes = 0;        // 0 = what all pages need, at most half of the memory that is free
  std::optional<int64_t> kv_repair_cache_memory_bytes;  // none = 2 % of the pool's memory
  std::vector<int32_t> kv_exact_layers;       // layers that read no compressed row
  double kv_audit_rate = 0.001;               // share of the steps that are checked against exact attention
  std::optional<uint64_t> kv_seed;            // of the dither; none = secret, fresh at each start
  std::vector<int32_t> calibration_tokens;    // token ids of the calibration text; empty = pools that need it calibrate on a
                                              // seeded token sequence
  // Files with the result of a calibration pass, beside the model. kUse: read them, and keep what a pass found. kReplace:
  // make the one that counts for every later start from calibration_tokens; an error where it cannot be written.
  enum class CalibrationFiles { kIgnore, kUse, kReplace } calibration_files = CalibrationFiles::kIgnore;
};

}  // namespace assay
