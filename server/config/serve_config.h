// Everything `assay serve` can be told. Plain values with the defaults; the flag table (flags.h) names them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/config.h"

namespace assay {

struct ByteSize {
  int64_t bytes = 0;
};

struct Duration {
  std::chrono::milliseconds time{0};
};

struct ServeConfig {
  // model
  std::string model;
  std::vector<std::string> served_model_names;
  std::string tokenizer;
  std::string chat_template;
  std::string load_format = "auto";
  std::string device = "auto";
  int32_t threads = 0;
  int32_t tensor_parallel_size = 1;
  std::optional<uint64_t> seed;

  // HTTP
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int32_t grpc_port = 8001;
  int32_t metrics_port = 0;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool metrics_auth = false;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::vector<std::string> allowed_origins;
  ByteSize max_body_bytes{8 << 20};
  int32_t max_connections = 16384;
  Duration request_timeout;
  Duration shutdown_timeout{std::chrono::seconds(30)};
  std::string log_level = "info";

  // scheduling
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 256;
  int32_t max_num_batched_tokens = 0;
  int32_t block_size = 16;
  int32_t max_num_queued_reqs = 1024;
  int32_t max_logprobs = 20;
  bool enable_prefix_caching = true;

  // KV cache
  ByteSize kv_cache_memory;
  std::string kv_cache_dtype = "auto";
  std::string kv_pool = "certified";

  // Meter of the KV cache (docs/certificate.md)
  std::string kv_radius = "witness";
  std::string kv_bound = "best";
  std::string kv_gate = "repair";
  double kv_tau = 0.2;
  double kv_tau_v = 0.05;
  double kv_delta = 0.01;
  bool kv_balance = true;
  bool kv_rotation = true;
  int32_t kv_outlier_pairs = 0;
  std::string kv_dither_stream = "periodic";
  std::string kv_prefill_meter = "sample";
  std::string kv_telemetry = "heads";
  std::string kv_backing = "host";
  ByteSize kv_backing_memory;
  std::optional<ByteSize> kv_repair_cache_memory;
  std::vector<std::string> kv_exact_layers;
  double kv_audit_rate = 0.001;
  std::optional<uint64_t> kv_seed;
};

// The engine's part of it.
EngineConfig engine_config(const ServeConfig& config);

}  // namespace assay
