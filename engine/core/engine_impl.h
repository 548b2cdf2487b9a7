// Engine over any Executor: the door of engine/api made of a checked inbox, an engine loop and the thread that turns
// it.
//
// Owns: the loop (with the executor) and its thread. Threads and errors: as engine/api/engine.h says.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "cache/sip_hash.h"
#include "engine/api/engine.h"
#include "engine/core/engine_loop.h"
#include "engine/core/request_check.h"
#include "engine/execute/executor.h"

namespace assay {

// What only tests change.
struct EngineOptions {
  std::function<TimePoint()> now = [] { return std::chrono::steady_clock::now(); };
  std::optional<SipKey> prefix_hash_key;  // none: from the system's random device
  int32_t prefix_hash_bits = 64;
  bool start_thread = true;  // false: the test calls step()
};

class EngineImpl : public Engine {
 public:
  // InvalidArgument: a limit of `config` or the executor's pool makes no sense; names it. `config` may leave
  // max_num_batched_tokens and max_model_len 0.
  static absl::StatusOr<std::unique_ptr<EngineImpl>> create(EngineConfig config, std::unique_ptr<Executor> executor,
                                                            EngineOptions options = {});
  ~EngineImpl() override;

  absl::StatusOr<std::unique_ptr<Stream>> submit(Request request) override;
  void drain() override;
  void abort_all() override;
  EngineStats stats() const override { return loop_.stats(); }
  MeterSnapshot meters() const override { return loop_.meters(); }
  GateStats gate() const override { return loop_.gate(); }
  const ModelInfo& model() const override { return loop_.executor().model(); }
  const PoolInfo& pool() const override { return loop_.executor().pool(); }
  const EngineConfig& config() const override { return config_; }

  // Without a thread: one step, and what tests may look at between steps.
  void step() { loop_.step(); }
  const EngineLoop& loop() const { return loop_; }

 private:
  EngineImpl(EngineConfig config, std::unique_ptr<Executor> executor, EngineOptions options);
  void run();

  const EngineConfig config_;
  const std::function<TimePoint()> now_;
  const RequestLimits limits_;
  const CertificateRules rules_;
  const uint64_t seed_;  // of requests without one
  std::atomic<int64_t> next_stream_id_ = 0;
  const std::shared_ptr<Inbox> inbox_;
  EngineLoop loop_;
  std::thread thread_;
};

}  // namespace assay
