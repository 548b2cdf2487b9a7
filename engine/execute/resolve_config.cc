#include "engine/execute/resolve_config.h"

#include <algorithm>
#include <string>

#include "cache/backing_store.h"
#include "engine/model/rope.h"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

constexpr int32_t kCpuBatchedTokens = 2048, kCudaBatchedTokens = 8192;
constexpr double kHostMemoryShare = 0.4, kGpuMemoryShare = 0.9;
constexpr double kRepairShare = 0.02;  // of the pool's memory, beside it

absl::Status invalid(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

absl::Status check_positive(const char* name, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return invalid(std::string(name) + " is " + std::to_string(value) + "; it must be from 1 to " + std::to_string(max));
}

absl::Status resolve_device(const Machine& machine, EngineConfig& config) {
  const bool has_cuda = machine.why_no_cuda.empty();
  if (config.device == "cuda") {
    if (has_cuda) return absl::OkStatus();
    return invalid("device cuda: " + machine.why_no_cuda + "; use device cpu or auto");
  }
  if (config.device != "auto" && config.device != "cpu") {
    return invalid("device \"" + config.device + "\" is not known; use auto, cpu or cuda");
  }
  if (config.device == "auto") config.device = has_cuda ? "cuda" : "cpu";
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

absl::Status check_settings_of_pools(const PoolLayout& layout, const EngineConfig& config) {
  if (config.kv_outlier_pairs != 0 && layout.format != KvFormat::kWitcert) {
    return invalid("kv_outlier_pairs is " + std::to_string(config.kv_outlier_pairs) + ": kv_pool " + layout.name +
                   " stores no pairs apart; it is a setting of witcert");
  }
  if (config.kv_dither_stream != "periodic" && config.kv_dither_stream != "per-slot") {
    return invalid("kv_dither_stream \"" + config.kv_dither_stream + "\" is not known; use periodic or per-slot");
  }
  return absl::OkStatus();
}

// Which radii a pool has: certified rows a witness, and dither where it is asked for; witcert dither alone; observed
// schemes a witness alone. What witcert has is what it uses, whatever the default says.
absl::StatusOr<kv::RadiusKind> radius_of(const PoolLayout& layout, EngineConfig& config) {
  if (layout.format == KvFormat::kWitcert && config.kv_radius == "witness") config.kv_radius = "dither";
  if (config.kv_radius == "witness") return kv::RadiusKind::kWitness;
  const bool known = config.kv_radius == "dither" || config.kv_radius == "both";
  if (!known) return invalid("kv_radius \"" + config.kv_radius + "\" is not known; use witness, dither or both");
  const bool available = layout.format == KvFormat::kCertified ||
                         (layout.format == KvFormat::kWitcert && config.kv_radius == "dither");
  if (available) return config.kv_radius == "both" ? kv::RadiusKind::kBoth : kv::RadiusKind::kDither;
  return invalid("kv_radius \"" + config.kv_radius + "\" is not available for kv_pool " + layout.name + "; use " +
                 (layout.format == KvFormat::kWitcert ? "dither" : "witness"));
}

absl::StatusOr<MeterRules> meter_rules(const PoolLayout& layout, EngineConfig& config) {
  MeterRules rules;
  if (absl::Status status = check_settings_of_pools(layout, config); !status.ok()) return status;
  const absl::StatusOr<kv::RadiusKind> radius = radius_of(layout, config);
  if (!radius.ok()) return radius.status();
  rules.radius = *radius;
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
  const double part = config.device == "cuda" ? kGpuMemoryShare : kHostMemoryShare;
  const int64_t share = static_cast<int64_t>(static_cast<double>(machine.available_memory_bytes) * part);
  return context > share / config.max_num_seqs ? share : context * config.max_num_seqs;
}

}  // namespace

absl::Status resolve_compute(const ModelConfig& model, const Machine& machine, EngineConfig& config) {
  if (absl::Status status = resolve_device(machine, config); !status.ok()) return status;
  const int64_t context = rope_context_length(model.rope, model.max_position_embeddings);
  if (config.max_model_len == 0) config.max_model_len = static_cast<int32_t>(std::min<int64_t>(context, INT32_MAX / 2));
  if (config.max_model_len < 0 || config.max_model_len > context) {
    return invalid("max_model_len is " + std::to_string(config.max_model_len) + "; the model allows 1 to " +
                   std::to_string(context) + " tokens");
  }
  if (config.threads == 0) config.threads = machine.cpus;
  if (config.max_num_batched_tokens == 0) {
    config.max_num_batched_tokens = config.device == "cuda" ? kCudaBatchedTokens : kCpuBatchedTokens;
  }
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
  absl::StatusOr<PoolLayout> layout =
      make_pool_layout(config.kv_pool, shape, {.outlier_pairs = config.kv_outlier_pairs});
  if (!layout.ok() && config.kv_pool == "certified" && make_pool_layout("exact", shape).ok()) {
    spdlog::warn("kv_pool is exact: {}", std::string(layout.status().message()));
    config.kv_pool = "exact";
    layout = make_pool_layout(config.kv_pool, shape);
  }
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
    const absl::StatusOr<MeterRules> rules = meter_rules(plan.layout, config);
    if (!rules.ok()) return rules.status();
    plan.meter = *rules;
  }
  return plan;
}

absl::StatusOr<GatePlan> resolve_gate(const CachePlan& cache, bool has_gate, int64_t host_bytes, EngineConfig& config) {
  GatePlan plan;
  const bool metered = is_compressed(cache.layout.format) && config.kv_gate != "off";
  if (metered && !has_gate && config.kv_gate == "repair") {
    spdlog::warn("kv_gate is observe: device {} cannot repair", config.device);
    config.kv_gate = "observe";
  }
  if (!has_gate || !metered) config.kv_backing = "none";
  if (config.kv_backing == "none") return plan;
  if (config.kv_backing_memory_bytes < 0) return invalid("kv_backing_memory must not be negative");
  const KvShape& shape = cache.layout.shape;
  const int64_t all_pages = cache.num_pages * BackingStore::bytes_per_page(shape);
  if (config.kv_backing_memory_bytes == 0) {
    const int64_t room = std::min(all_pages, std::max<int64_t>(host_bytes, 0) / 2);
    if (room < BackingStore::bytes_per_page(shape)) {
      return invalid("no host memory is left for exact rows (a page takes " + size_text(BackingStore::bytes_per_page(shape)) +
                     "); lower kv_cache_memory, or use kv_backing none with kv_gate observe");
    }
    config.kv_backing_memory_bytes = room;
  }
  plan.backing_bytes = std::min(2 * all_pages, config.kv_backing_memory_bytes);
  const int64_t pool_bytes = cache.num_pages * cache.layout.bytes_per_page();
  const int64_t repair_bytes =
      config.kv_repair_cache_memory_bytes.value_or(static_cast<int64_t>(static_cast<double>(pool_bytes) * kRepairShare));
  if (repair_bytes < 0) return invalid("kv_repair_cache_memory must not be negative");
  const int64_t slot_bytes = cache.layout.view(nullptr, cache.num_pages).exact_slot_bytes();
  const int64_t all_slots = int64_t{cache.num_pages} * shape.num_layers * shape.num_kv_heads;
  plan.repair_slots = static_cast<int32_t>(std::min<int64_t>({repair_bytes / slot_bytes, all_slots, INT32_MAX / 2}));
  config.kv_repair_cache_memory_bytes = plan.repair_slots * slot_bytes;
  return plan;
}

}  // namespace assay
