// All metrics of a server, under our own names and, with the same values, under the names that dashboards and schedulers made
// for vLLM read. The only place that knows Prometheus, with the files beside it.
//
// Threads: any. A scrape takes a snapshot of the engine's counters and blocks nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/api/config.h"
#include "engine/api/gate.h"
#include "engine/api/meters.h"
#include "engine/api/model_info.h"
#include "engine/api/stats.h"
#include "server/service/observer.h"

namespace assay {

struct HttpObservation {
  std::string method;
  std::string route;  // bounded: a path of the route table, or "none"
  int status = 0;
  double seconds = 0.0;
};

struct GrpcObservation {
  std::string method;  // bounded: a method of assay.v1.Inference
  std::string code;    // OK, INVALID_ARGUMENT, ...
  double seconds = 0.0;
};

class Metrics final : public RequestObserver {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics() override;

  // From now on a scrape shows the engine. The functions must stay callable as long as this object lives.
  void attach_engine(std::function<EngineStats()> stats, std::function<MeterSnapshot()> meters,
                     std::function<GateStats()> gate, const PoolInfo& pool, const EngineConfig& config);

  void admitted(const RequestParameters& parameters) override;
  void rejected(const std::string& reason) override;
  void first_token(double seconds_since_submit) override;
  void next_token(double seconds_since_previous) override;
  void sequence_finished(const SequenceReport& report) override;
  void request_finished(int32_t most_generated_tokens) override;
  void http_request(const HttpObservation& observation);
  void grpc_call(const GrpcObservation& observation);

  // What /metrics answers.
  std::string text(bool openmetrics) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
