#include "server/ops/engine_families.h"

#include <array>
#include <limits>

#include "server/ops/family.h"

namespace assay {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
MetricFamily finished_requests(const EngineStats& stats) {
  constexpr std::array<const char*, 4> kReasons{"stop", "length", "abort", "error"};
  MetricFamily result = family(MetricType::Counter, "assay_requests_total", "Finished sequences by reason");
  for (size_t i = 0; i < kReasons.size(); ++i) {
    add_sample(result, static_cast<double>(stats.finished_total[i]), {{"finish_reason", kReasons[i]}});
  }
  return result;
}

MetricFamily step_tokens(const EngineStats& stats) {
  MetricFamily result = family(MetricType::Histogram, "assay_iteration_tokens", "Tokens per engine step");
  ClientMetric metric;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < stats.step_tokens.size(); ++i) {
    cumulative += static_cast<uint64_t>(stats.step_tokens[i]);
    const bool last = i == EngineStats::kStepTokenBounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : EngineStats::kStepTokenBounds[i];
    metric.histogram.bucket.push_back({cumulative, bound});
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = static_cast<double>(stats.step_tokens_sum);
  result.metric.push_back(std::move(metric));
  return result;
}

MetricFamily pages(const EngineStats& stats) {
  MetricFamily result = family(MetricType::Gauge, "assay_kv_pages", "Pages of the KV cache by state");
  add_sample(result, static_cast<double>(stats.pages_in_use), {{"state", "in_use"}});
  add_sample(result, static_cast<double>(stats.pages_cached), {{"state", "cached"}});
  add_sample(result, static_cast<double>(stats.pages_total - stats.pages_in_use - stats.pages_cached), {{"state", "free"}});
  return result;
}

MetricFamily kv_info(const PoolInfo& pool, const EngineConfig& config) {
  const bool metered = pool.has_meter();
  MetricFamily result = family(MetricType::Gauge, "assay_kv_info", "How the KV cache stores keys and values; always 1");
  add_sample(result, 1.0,
      {{"pool", pool.pool}, {"dtype", pool.dtype}, {"granularity", pool.granularity}, {"scale_source", pool.scale_source},
       {"bytes_per_token_head", std::to_string(pool.bytes_per_token_head)},
       {"radius", metered ? config.kv_radius : "none"}, {"bound", metered ? config.kv_bound : "none"},
       {"gate", metered ? config.kv_gate : "off"}});
  return result;
}

MetricFamily cache_config(const PoolInfo& pool, const EngineConfig& config) {
  MetricFamily result = family(MetricType::Gauge, "assay_cache_config_info", "Configuration of the KV cache; always 1");
  add_sample(result, 1.0,
      {{"block_size", std::to_string(pool.block_size)}, {"num_gpu_blocks", std::to_string(pool.num_pages)},
       {"cache_dtype", pool.dtype}, {"enable_prefix_caching", config.enable_prefix_caching ? "True" : "False"}});
  return result;
}

}  // namespace

std::vector<MetricFamily> engine_families(const EngineStats& stats, const PoolInfo& pool, const EngineConfig& config) {
  const double total = static_cast<double>(stats.pages_total);
  const double usage = total > 0 ? static_cast<double>(stats.pages_in_use) / total : 0.0;
  constexpr MetricType kGauge = MetricType::Gauge, kCounter = MetricType::Counter;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  return {
      single(kGauge, "assay_num_requests_running", "Sequences that run", number(stats.num_running)),
      single(kGauge, "assay_num_requests_waiting", "Sequences that wait", number(stats.num_waiting)),
      single(kGauge, "assay_kv_cache_usage_ratio", "Share of the KV pages held by sequences, 0 to 1", usage),
      pages(stats),
      kv_info(pool, config),
      cache_config(pool, config),
      single(kGauge, "assay_engine_healthy", "1 while the engine runs, 0 after it has failed", stats.healthy ? 1.0 : 0.0),
      finished_requests(stats),
      single(kCounter, "assay_prompt_tokens_total", "Prompt tokens of admitted requests", number(stats.prompt_tokens_total)),
      single(kCounter, "assay_generation_tokens_total", "Generated tokens", number(stats.generation_tokens_total)),
      single(kCounter, "assay_prefill_tokens_computed_total", "Prompt tokens computed, recomputation included",
             number(stats.prefill_tokens_computed_total)),
      single(kCounter, "assay_preemptions_total", "Sequences put back to waiting", number(stats.preemptions_total)),
      single(kCounter, "assay_restored_tokens_total", "Tokens of preempted sequences read back instead of computed again",
             number(stats.restored_tokens_total)),
      single(kCounter, "assay_prefix_cache_queries_total", "Tokens looked up in the prefix cache",
             number(stats.prefix_cache_queries_total)),
      single(kCounter, "assay_prefix_cache_hits_total", "Tokens found in the prefix cache",
             number(stats.prefix_cache_hits_total)),
      single(kCounter, "assay_steps_total", "Engine steps", number(stats.steps_total)),
      step_tokens(stats),
  };
}

std::vector<MetricFamily> process_families(const ProcessStats& stats) {
  constexpr MetricType kGauge = MetricType::Gauge;
  return {
      single(MetricType::Counter, "process_cpu_seconds_total", "User and system time in seconds", stats.cpu_seconds),
      single(kGauge, "process_start_time_seconds", "Start of the process, seconds since 1970", stats.start_time_s),
      single(kGauge, "process_resident_memory_bytes", "Resident memory", static_cast<double>(stats.resident_bytes)),
      single(kGauge, "process_virtual_memory_bytes", "Virtual memory", static_cast<double>(stats.virtual_bytes)),
      single(kGauge, "process_open_fds", "Open file descriptors", static_cast<double>(stats.open_fds)),
      single(kGauge, "process_max_fds", "Most open file descriptors allowed", static_cast<double>(stats.max_fds)),
      single(kGauge, "process_threads", "Threads", static_cast<double>(stats.threads)),
  };
}

}  // namespace assay
