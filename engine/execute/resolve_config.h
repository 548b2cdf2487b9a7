// Turns what the user asked for into what this machine and model will do, or into a sentence that says why not.
//
// Threads: pure functions. Errors: InvalidArgument, naming the setting.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cache/pool/pool_layout.h"
#include "engine/api/config.h"
#include "engine/model/model_config.h"

namespace assay {

struct Machine {
  int32_t cpus = 1;
  int64_t available_memory_bytes = 0;  // of the host, or of the GPU where the cache is to lie there
  std::string why_no_cuda = "this build runs on the CPU only";  // empty: a GPU can be used
};

// How the cells of a pool with a meter are judged.
struct MeterRules {
  kv::BoundKind bound = kv::BoundKind::kBest;
  kv::RadiusKind radius = kv::RadiusKind::kWitness;
};

// What stands behind the gate. 0: nothing.
struct GatePlan {
  int64_t backing_bytes = 0;  // of exact rows in host memory
  int32_t repair_slots = 0;   // pages of one (layer, KV head) that are kept repaired
};

struct CachePlan {
  PoolLayout layout;
  int32_t num_pages = 0;
  MeterRules meter;
};

// Fills every default of `config` but those of the cache.
absl::Status resolve_compute(const ModelConfig& model, const Machine& machine, EngineConfig& config);

// Dtype, layout and size of the cache. `stored` is the weights' dtype. Without kv_cache_memory_bytes: room for
// max_num_seqs full contexts, at most 40 % of the available memory (90 % of a GPU's). A context that does not fit: an error where
// max_model_len was asked for (`max_model_len_given`), else max_model_len shrinks to what fits.
// `certified` on a model whose head_dim it cannot hold becomes `exact`, with a warning.
absl::StatusOr<CachePlan> resolve_cache(const ModelConfig& model, DType stored, const Machine& machine,
                                        bool max_model_len_given, EngineConfig& config);

// Backing store and repair cache beside that cache, for a device that has a gate or not. Without kv_backing_memory_bytes:
// room for all pages, at most half of `host_bytes`, which is free host memory without the pool.
absl::StatusOr<GatePlan> resolve_gate(const CachePlan& cache, bool has_gate, int64_t host_bytes, EngineConfig& config);

}  // namespace assay
