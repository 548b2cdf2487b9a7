#include "server/ops/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "server/ops/aliases.h"
#include "server/ops/engine_families.h"
#include "server/ops/exposition.h"
#include "server/ops/gate_families.h"
#include "server/ops/meter_text.h"
#include "server/ops/process_stats.h"

namespace assay {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// Seconds. The upper edges are those in use elsewhere (to 40 minutes and more); the lower ones are finer.
const Buckets kFirstTokenBuckets{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                                 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Buckets kTokenTimeBuckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
                                5.0, 7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kLatencyBuckets{0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
                              40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kChoiceBuckets{1, 2, 5, 10, 20, 50, 100};

// 1, 2, 5, 10, ... 1,000,000
Buckets token_buckets() {
  Buckets buckets;
  for (double decade = 1; decade <= 100'000; decade *= 10) {
    for (const double step : {1, 2, 5}) buckets.push_back(decade * step);
  }
  buckets.push_back(1'000'000);
  return buckets;
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& name) : model_name(name) {}

  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }

  std::string model_name;
  prometheus::Registry registry;
  const Buckets tokens = token_buckets();

  prometheus::Histogram& ttft = histogram("assay_time_to_first_token_seconds", "Submit to first token", kFirstTokenBuckets);
  prometheus::Histogram& itl =
      histogram("assay_inter_token_latency_seconds", "Time between two tokens of a sequence", kTokenTimeBuckets);
  prometheus::Histogram& tpot = histogram("assay_request_time_per_output_token_seconds",
                                          "Decode time of a sequence per token after the first", kTokenTimeBuckets);
  prometheus::Histogram& e2e = histogram("assay_e2e_request_latency_seconds", "Submit to end", kLatencyBuckets);
  prometheus::Histogram& queue = histogram("assay_request_queue_time_seconds", "Submit to first scheduled", kLatencyBuckets);
  prometheus::Histogram& inference =
      histogram("assay_request_inference_time_seconds", "First scheduled to end", kLatencyBuckets);
  prometheus::Histogram& prefill =
      histogram("assay_request_prefill_time_seconds", "First scheduled to first token", kLatencyBuckets);
  prometheus::Histogram& decode = histogram("assay_request_decode_time_seconds", "First token to end", kLatencyBuckets);
  prometheus::Histogram& prompt_tokens = histogram("assay_request_prompt_tokens", "Prompt tokens of a sequence", tokens);
  prometheus::Histogram& generation_tokens =
      histogram("assay_request_generation_tokens", "Generated tokens of a sequence", tokens);
  prometheus::Histogram& computed_tokens = histogram("assay_request_prefill_kv_computed_tokens",
                                                     "Prompt tokens that the prefix cache did not have", tokens);
  prometheus::Histogram& most_tokens = histogram("assay_request_max_num_generation_tokens",
                                                 "Most generated tokens of any sequence of a request", tokens);
  prometheus::Histogram& params_n = histogram("assay_request_params_n", "n of requests", kChoiceBuckets);
  prometheus::Histogram& params_max_tokens = histogram("assay_request_params_max_tokens", "max_tokens of requests", tokens);

  prometheus::Family<prometheus::Counter>& rejected = prometheus::BuildCounter()
                                                          .Name("assay_requests_rejected_total")
                                                          .Help("Requests that were refused, by reason")
                                                          .Register(registry);
  prometheus::Family<prometheus::Counter>& http_requests =
      prometheus::BuildCounter().Name("http_requests_total").Help("HTTP requests").Register(registry);
  prometheus::Family<prometheus::Histogram>& http_duration = prometheus::BuildHistogram()
                                                                 .Name("http_request_duration_seconds")
                                                                 .Help("Time to the end of an HTTP reply")
                                                                 .Register(registry);

  prometheus::Family<prometheus::Counter>& grpc_requests =
      prometheus::BuildCounter().Name("grpc_requests_total").Help("gRPC calls that ended").Register(registry);
  prometheus::Family<prometheus::Histogram>& grpc_duration = prometheus::BuildHistogram()
                                                                 .Name("grpc_request_duration_seconds")
                                                                 .Help("Time to the end of a gRPC call")
                                                                 .Register(registry);

  mutable std::mutex mutex;  // what follows
  std::function<EngineStats()> stats;
  std::function<MeterSnapshot()> meters;
  std::function<GateStats()> gate;
  PoolInfo pool;
  EngineConfig config;
};

Metrics::Metrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {
  for (const char* reason : {"queue_full", "unavailable", "invalid_request"}) impl_->rejected.Add({{"reason", reason}});
}
Metrics::~Metrics() = default;

void Metrics::attach_engine(std::function<EngineStats()> stats, std::function<MeterSnapshot()> meters,
                            std::function<GateStats()> gate, const PoolInfo& pool, const EngineConfig& config) {
  const std::lock_guard lock(impl_->mutex);
  impl_->stats = std::move(stats);
  impl_->meters = std::move(meters);
  impl_->gate = std::move(gate);
  impl_->pool = pool;
  impl_->config = config;
}

void Metrics::admitted(const RequestParameters& parameters) {
  impl_->params_n.Observe(parameters.n);
  impl_->params_max_tokens.Observe(parameters.max_tokens);
}

void Metrics::rejected(const std::string& reason) { impl_->rejected.Add({{"reason", reason}}).Increment(); }
void Metrics::first_token(double seconds) { impl_->ttft.Observe(seconds); }
void Metrics::next_token(double seconds) { impl_->itl.Observe(seconds); }

void Metrics::sequence_finished(const SequenceReport& report) {
  const SequenceUsage& usage = report.usage;
  impl_->e2e.Observe(report.end_to_end_s);
  impl_->queue.Observe(usage.queue_s);
  impl_->prefill.Observe(usage.prefill_s);
  impl_->decode.Observe(usage.decode_s);
  impl_->inference.Observe(usage.prefill_s + usage.decode_s);
  if (usage.completion_tokens > 1) impl_->tpot.Observe(usage.decode_s / (usage.completion_tokens - 1));
  impl_->prompt_tokens.Observe(usage.prompt_tokens);
  impl_->generation_tokens.Observe(usage.completion_tokens);
  impl_->computed_tokens.Observe(usage.prompt_tokens - usage.cached_tokens);
}

void Metrics::request_finished(int32_t most_generated_tokens) { impl_->most_tokens.Observe(most_generated_tokens); }

void Metrics::http_request(const HttpObservation& observation) {
  // Methods are the client's word: only known ones become labels.
  const char* method = "other";
  for (const char* known : {"GET", "POST", "HEAD", "OPTIONS"}) {
    if (observation.method == known) method = known;
  }
  impl_->http_requests
      .Add({{"method", method}, {"handler", observation.route}, {"status", std::to_string(observation.status)}})
      .Increment();
  impl_->http_duration.Add({{"handler", observation.route}}, kLatencyBuckets).Observe(observation.seconds);
}

void Metrics::grpc_call(const GrpcObservation& observation) {
  impl_->grpc_requests.Add({{"method", observation.method}, {"code", observation.code}}).Increment();
  impl_->grpc_duration.Add({{"method", observation.method}}, kLatencyBuckets).Observe(observation.seconds);
}

std::string Metrics::text(bool openmetrics) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::string meters;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stats) {
      for (auto& family : engine_families(impl_->stats(), impl_->pool, impl_->config)) families.push_back(std::move(family));
      for (auto& family : gate_families(impl_->gate(), impl_->pool.has_meter())) families.push_back(std::move(family));
      meters = meter_text(impl_->meters(), impl_->config.kv_telemetry == "heads", impl_->model_name, openmetrics);
    }
  }
  add_aliases(impl_->model_name, families);
  for (auto& family : process_families(read_process_stats())) families.push_back(std::move(family));
  return exposition_text(families, meters, openmetrics);
}

}  // namespace assay
