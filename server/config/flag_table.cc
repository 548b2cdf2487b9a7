// The rows. Names follow vLLM where it has the flag.
#include "server/config/flags.h"

namespace assay {

const std::vector<Flag>& serve_flags() {
  using C = ServeConfig;
  static const std::vector<Flag> flags = {
      {"model", &C::model, "Model", "DIR", "Hugging Face model folder; also the first argument without a flag"},
      {"served-model-name", &C::served_model_names, "Model", "NAME", "Name in the API, may be given several times",
       {}, 0, 0, "the folder's name", false, true},
      {"tokenizer", &C::tokenizer, "Model", "DIR", "Folder with tokenizer.json", {}, 0, 0, "the model folder"},
      {"chat-template", &C::chat_template, "Model", "FILE", "Jinja chat template", {}, 0, 0, "the tokenizer's own"},
      {"load-format", &C::load_format, "Model", "FORMAT",
       "auto: weights of the folder; dummy: random weights from config.json alone", {"auto", "dummy"}},
      {"device", &C::device, "Model", "DEVICE", "Where the model runs", {"auto", "cpu", "cuda"}},
      {"threads", &C::threads, "Model", "N", "CPU threads", {}, 0, 4096, "all cores"},
      {"tensor-parallel-size", &C::tensor_parallel_size, "Model", "N", "Devices that share the model", {}, 1, 1},
      {"seed", &C::seed, "Model", "N", "Seed of requests that bring none", {}, 0, INT64_MAX, "random"},

      {"host", &C::host, "HTTP", "ADDRESS", "Address to listen on"},
      {"port", &C::port, "HTTP", "PORT", "HTTP port; 0 takes any free one", {}, 0, 65535},
      {"grpc-port", &C::grpc_port, "HTTP", "PORT", "gRPC port (assay.v1.Inference); 0 turns gRPC off", {}, 0, 65535},
      {"metrics-port", &C::metrics_port, "HTTP", "PORT", "Serve /metrics, /health and /ready on this port as well", {}, 0,
       65535, "same as --port"},
      {"api-key", &C::api_keys, "HTTP", "KEY", "Accepted API key, may be given several times; covers every route but /health, "
       "/ready, /version and /metrics", {}, 0, 0, "none", true, true},
      {"api-key-file", &C::api_key_file, "HTTP", "FILE", "More API keys, one a line, at least one; # begins a comment line", {}, 0, 0,
       "none", false, true},
      {"metrics-auth", &C::metrics_auth, "HTTP", "", "/metrics needs an API key too"},
      {"ssl-certfile", &C::ssl_certfile, "HTTP", "FILE", "PEM certificate chain: serve HTTPS", {}, 0, 0, "none"},
      {"ssl-keyfile", &C::ssl_keyfile, "HTTP", "FILE", "PEM private key of --ssl-certfile", {}, 0, 0, "none"},
      {"allowed-origins", &C::allowed_origins, "HTTP", "ORIGIN", "Browser origin that may call (CORS), may be given several "
       "times; * is every origin", {}, 0, 0, "none"},
      {"max-body-bytes", &C::max_body_bytes, "HTTP", "SIZE", "Largest request body; above it 413", {}, 1024, INT64_C(1) << 34},
      {"max-connections", &C::max_connections, "HTTP", "N", "Open connections; above it 503", {}, 1, 1'000'000},
      {"request-timeout", &C::request_timeout, "HTTP", "TIME", "Longest time of a request, waiting included; above it 408, or an error event on a stream",
       {}, 0, INT64_C(1) << 40, "none"},
      {"shutdown-timeout", &C::shutdown_timeout, "HTTP", "TIME", "After SIGTERM: how long running requests may go on", {}, 0,
       INT64_C(1) << 40},
      {"log-level", &C::log_level, "HTTP", "LEVEL", "Least important log lines to print",
       {"debug", "info", "warning", "error"}},

      {"max-model-len", &C::max_model_len, "Scheduling", "TOKENS", "Context: prompt and answer together", {}, 0, INT32_MAX,
       "the model's"},
      {"max-num-seqs", &C::max_num_seqs, "Scheduling", "N", "Sequences that run at once", {}, 1, 65536},
      {"max-num-batched-tokens", &C::max_num_batched_tokens, "Scheduling", "TOKENS", "Tokens per step", {}, 0, 1 << 20,
       "8192, on the CPU 2048"},
      {"block-size", &C::block_size, "Scheduling", "TOKENS", "Tokens per page of the KV cache, a multiple of 16", {}, 16, 1024},
      {"max-num-queued-reqs", &C::max_num_queued_reqs, "Scheduling", "N", "Sequences that may wait; above it 429", {}, 1,
       1'000'000},
      {"max-logprobs", &C::max_logprobs, "Scheduling", "N", "Most log probabilities per token; above it 400", {}, 0, 1000},
      {"enable-prefix-caching", &C::enable_prefix_caching, "Scheduling", "", "Share the cache of equal prompt beginnings"},

      {"kv-cache-memory", &C::kv_cache_memory, "KV cache", "SIZE", "Memory of the KV cache", {}, 0, INT64_MAX,
       "a share of what is free"},
      {"kv-cache-dtype", &C::kv_cache_dtype, "KV cache", "TYPE", "Type of exact rows; auto is the model's",
       {"auto", "float32", "bfloat16", "float16"}},
      {"kv-pool", &C::kv_pool, "KV cache", "POOL", "How the cache stores keys and values; a name that is unknown is refused with the list of those that are"},
      {"kv-radius", &C::kv_radius, "KV cache", "RADIUS",
       "What bounds the error of a logit. witness: stored with each row, always holds; dither: from the scales, holds with "
       "probability 1 - delta for text chosen without the dither; both: the smaller one per token",
       {"witness", "dither", "both"}},
      {"kv-bound", &C::kv_bound, "KV cache", "BOUND", "From radii to the meter; best is the least of all valid ones",
       {"best", "f", "e-form", "tanh"}},
      {"kv-gate", &C::kv_gate, "KV cache", "GATE",
       "repair: read exact rows where a meter is over its threshold, before anything is emitted (needs a backing store); "
       "observe: meter and report; off: no meter", {"off", "observe", "repair"}},
      {"kv-tau", &C::kv_tau, "KV cache", "X",
       "Threshold of the key meter (total variation). Below 1 it certifies, from 1 up it only ranks", {}, 0, 1'000'000},
      {"kv-tau-v", &C::kv_tau_v, "KV cache", "X", "Threshold of the value meter, relative to the largest value row", {}, 0,
       1'000'000},
      {"kv-delta", &C::kv_delta, "KV cache", "P", "Of the dither radius: probability of a violation per request", {}, 0, 1},
      {"kv-balance", &C::kv_balance, "KV cache", "", "Balance key channels against query channels (calibrated at start)"},
      {"kv-rotation", &C::kv_rotation, "KV cache", "", "Rotate heads by a random-sign Hadamard matrix before quantising"},
      {"kv-outlier-pairs", &C::kv_outlier_pairs, "KV cache", "N", "Rotary pairs per KV head kept without loss (witcert)",
       {"0", "4", "16"}},
      {"kv-dither-stream", &C::kv_dither_stream, "KV cache", "STREAM",
       "periodic: one table per layer and KV head; per-slot: fresh numbers per slot, slower", {"periodic", "per-slot"}},
      {"kv-prefill-meter", &C::kv_prefill_meter, "KV cache", "WHICH",
       "Prompt positions metered when they read compressed rows. sample: the last of a chunk and every 64th",
       {"off", "sample", "all"}},
      {"kv-telemetry", &C::kv_telemetry, "KV cache", "DETAIL", "Meter in /metrics: per layer and head, over all, or not at all",
       {"off", "summary", "heads"}},
      {"kv-backing", &C::kv_backing, "KV cache", "WHERE",
       "host: exact rows of every page in host memory, written with the token; none: nothing to repair or audit from",
       {"host", "none"}},
      {"kv-backing-memory", &C::kv_backing_memory, "KV cache", "SIZE",
       "Most memory for exact rows; pages that find no room are served without repair and counted. What is more than all pages "
       "need (up to as much again) keeps the rows of preempted sequences, which then need not be computed again", {}, 0, INT64_MAX,
       "what all pages need, at most half of what is free"},
      {"kv-repair-cache-memory", &C::kv_repair_cache_memory, "KV cache", "SIZE",
       "Memory for repaired pages, beside the pool; 0 keeps none, so each step reads them again", {}, 0, INT64_MAX,
       "2 % of the pool's"},
      {"kv-exact-layers", &C::kv_exact_layers, "KV cache", "LAYERS",
       "Layers that read exact rows alone, such as 0,5-7; may be given several times", {}, 0, 0, "none"},
      {"kv-audit-rate", &C::kv_audit_rate, "KV cache", "SHARE",
       "Share of the decode steps that are computed again exactly, in the shadow, and compared with their bounds; 0 is never",
       {}, 0, 1, nullptr, false, false, true},
      {"kv-seed", &C::kv_seed, "KV cache", "N",
       "Fixed seed of the dither, for tests only: whoever knows it can defeat the dither radius", {}, 0, INT64_MAX,
       "secret, fresh at each start", true},
  };
  return flags;
}

}  // namespace assay
