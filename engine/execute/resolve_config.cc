#include "engine/execute/resolve_config.h"

#include <algorithm>
#include <string>

#include "engine/model/rope.h"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

constexpr int32_t kCpuBatchedTokens = 2048;
constexpr double kMemoryShare = 0.4;

absl::Status invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

absl::Status check_positive(const char* name, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return invalid(std::string(name) + " is " + std::to_string(value) + "; it must be from 1 to " + std::to_string(max));
}

absl::Status resolve_device(EngineConfig& config) {
  if (config.device == "cuda") return invalid("device cuda: this build runs on the CPU only; use device cpu or auto");
  if (config.device != "auto" && config.device != "cpu") {
    return invalid("device \"" + config.device + "\" is not known; use auto, cpu or cuda");
  }
  config.device = "cpu";
  return absl::OkStatus();
}

absl::StatusOr<DType> row_dtype(const std::string& name, DType stored) {
  if (name == "auto") return stored;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  return invalid("kv_cache_dtype \"" + name + "\" is not known; use auto, float32, bfloat16 or float16");
}

int64_t pages_for(int64_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

absl::StatusOr<MeterRules> meter_rules(const EngineConfig& config) {
  MeterRules rules;
  if (config.kv_radius != "witness") {
    return invalid("kv_radius \"" + config.kv_radius + "\" is not available for kv_pool " + config.kv_pool +
                   "; use witness");
  }
  if (config.kv_bound == "best") return rules;
  if (config.kv_bound == "f")
    rules.bound = kv::BoundKind::kBox;
  else if (config.kv_bound == "e-form")
    rules.bound = kv::BoundKind::kEForm;
  else if (config.kv_bound == "tanh")
    rules.bound = kv::BoundKind::kTanh;
  else
    return invalid("kv_bound \"" + config.kv_bound + "\" is not known; use best, f, e-form or tanh");
  return rules;
}

// Exact: what is printed can be given back as kv_cache_memory.
std::string size_text(int64_t bytes) {
  constexpr int64_t kMiB = 1 << 20;
  return bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

int64_t default_memory(const PoolLayout& layout, const Machine& machine, const EngineConfig& config) {
  const int64_t page_bytes = layout.bytes_per_page() + layout.side_bytes_per_page();
  const int64_t context = pages_for(config.max_model_len, config.block_size) * page_bytes;
  const int64_t share = static_cast<int64_t>(static_cast<double>(machine.available_memory_bytes) * kMemoryShare);
  return context > share / config.max_num_seqs ? share : context * config.max_num_seqs;
}

}  // namespace

absl::Status resolve_compute(const ModelConfig& model, const Machine& machine, EngineConfig& config) {
  if (absl::Status status = resolve_device(config); !status.ok()) return status;
  const int64_t context = rope_context_length(model.rope, model.max_position_embeddings);
  if (config.max_model_len == 0) config.max_model_len = static_cast<int32_t>(std::min<int64_t>(context, INT32_MAX / 2));
  if (config.max_model_len < 0 || config.max_model_len > context) {
    return invalid("max_model_len is " + std::to_string(config.max_model_len) + "; the model allows 1 to " +
                   std::to_string(context) + " tokens");
  }
  if (config.threads == 0) config.threads = machine.cpus;
  if (config.max_num_batched_tokens == 0) config.max_num_batched_tokens = kCpuBatchedTokens;
  for (const absl::Status& status :
       {check_positive("threads", config.threads, 1024), check_positive("max_num_seqs", config.max_num_seqs, 65536),
        check_positive("max_num_batched_tokens", config.max_num_batched_tokens, 1 << 20),
        check_positive("block_size", config.block_size, 4096)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<CachePlan> resolve_cache(const ModelConfig& model, DType stored, const Machine& machine,
                                        bool max_model_len_given, EngineConfig& config) {
  const absl::StatusOr<DType> dtype = row_dtype(config.kv_cache_dtype, stored);
  if (!dtype.ok()) return dtype.status();
  config.kv_cache_dtype = dtype_name(*dtype);
  const KvShape shape{model.num_layers, model.num_kv_heads, model.head_dim, config.block_size, *dtype};
  absl::StatusOr<PoolLayout> layout = make_pool_layout(config.kv_pool, shape);
  if (!layout.ok()) return layout.status();

  if (config.kv_cache_memory_bytes < 0) return invalid("kv_cache_memory must not be negative");
  if (config.kv_cache_memory_bytes == 0) config.kv_cache_memory_bytes = default_memory(*layout, machine, config);
  const int64_t page_bytes = layout->bytes_per_page() + layout->side_bytes_per_page();
  const int64_t pages = std::min<int64_t>(config.kv_cache_memory_bytes / page_bytes, INT32_MAX / 2);
  if (pages < 1) {
    return invalid("kv_cache_memory of " + size_text(config.kv_cache_memory_bytes) + " holds no page of " + size_text(page_bytes));
  }
  const int64_t needed = pages_for(config.max_model_len, config.block_size);
  if (pages < needed && max_model_len_given) {
    return invalid("kv_cache_memory of " + size_text(config.kv_cache_memory_bytes) + " holds " +
                   std::to_string(pages * config.block_size) + " tokens, less than max_model_len " +
                   std::to_string(config.max_model_len) + " (which takes " + size_text(needed * page_bytes) + ")");
  }
  if (pages < needed) {
    config.max_model_len = static_cast<int32_t>(pages * config.block_size);
    spdlog::warn("max_model_len is {}: the KV cache of {} holds no longer context", config.max_model_len,
                 size_text(config.kv_cache_memory_bytes));
  }
  CachePlan plan{*std::move(layout), static_cast<int32_t>(pages), {}};
  if (is_compressed(plan.layout.format)) {
    const absl::StatusOr<MeterRules> rules = meter_rules(config);
    if (!rules.ok()) return rules.status();
    plan.meter = *rules;
  }
  return plan;
}

}  // namespace assay
