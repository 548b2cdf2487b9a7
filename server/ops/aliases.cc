#include "server/ops/aliases.h"

namespace assay {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

struct Alias {
  const char* ours;
  const char* theirs;
};

constexpr Alias kAliases[] = {
    {"assay_num_requests_running", "vllm:num_requests_running"},
    {"assay_num_requests_waiting", "vllm:num_requests_waiting"},
    {"assay_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"assay_kv_cache_usage_ratio", "vllm:gpu_cache_usage_perc"},
    {"assay_cache_config_info", "vllm:cache_config_info"},
    {"assay_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"assay_generation_tokens_total", "vllm:generation_tokens_total"},
    {"assay_requests_total", "vllm:request_success_total"},
    {"assay_preemptions_total", "vllm:num_preemptions_total"},
    {"assay_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"assay_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"assay_requests_rejected_total", "vllm:admission_rejections_total"},
    {"assay_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"assay_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"assay_inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},
    {"assay_request_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"assay_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"assay_request_queue_time_seconds", "vllm:request_queue_time_seconds"},
    {"assay_request_inference_time_seconds", "vllm:request_inference_time_seconds"},
    {"assay_request_prefill_time_seconds", "vllm:request_prefill_time_seconds"},
    {"assay_request_decode_time_seconds", "vllm:request_decode_time_seconds"},
    {"assay_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"assay_request_generation_tokens", "vllm:request_generation_tokens"},
    {"assay_request_prefill_kv_computed_tokens", "vllm:request_prefill_kv_computed_tokens"},
    {"assay_request_max_num_generation_tokens", "vllm:request_max_num_generation_tokens"},
    {"assay_request_params_n", "vllm:request_params_n"},
    {"assay_request_params_max_tokens", "vllm:request_params_max_tokens"},
    {"assay_iteration_tokens", "vllm:iteration_tokens_total"},
};

MetricFamily alias_of(const MetricFamily& ours, const char* name) {
  MetricFamily theirs = ours;
  theirs.name = name;
  theirs.help = ours.help + " (same as " + ours.name + ")";
  for (ClientMetric& metric : theirs.metric) {
    for (ClientMetric::Label& label : metric.label) {
      if (label.name == "finish_reason") label.name = "finished_reason";
    }
    metric.label.push_back({"engine", "0"});
  }
  return theirs;
}

}  // namespace

void add_aliases(const std::string& model_name, std::vector<MetricFamily>& families) {
  for (MetricFamily& family : families) {
    if (family.name.rfind("assay_", 0) != 0) continue;
    for (ClientMetric& metric : family.metric) metric.label.push_back({"model_name", model_name});
  }
  const std::vector<MetricFamily> ours = families;
  for (const Alias& alias : kAliases) {
    for (const MetricFamily& family : ours) {
      if (family.name == alias.ours) families.push_back(alias_of(family, alias.theirs));
    }
  }
}

}  // namespace assay
