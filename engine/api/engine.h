// The one door from the server to everything that computes.
//
// Owns: the engine thread, the executor with its device, the KV cache, every request that is running or waiting.
// Threads: all methods may be called from any thread. Requests are run by the engine thread.
// Errors: absl::Status. InvalidArgument: the request's fault, the message names the field. ResourceExhausted: the queue is
// full. Unavailable: draining or dead. A failing request never costs another one anything.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/api/events.h"
#include "engine/api/gate.h"
#include "engine/api/meters.h"
#include "engine/api/model_info.h"
#include "engine/api/request.h"
#include "engine/api/stats.h"
#include "engine/api/stream.h"

namespace assay {

class Engine {
 public:
  virtual ~Engine() = default;  // cancels what is left, then joins the engine thread

  // Loads the model (seconds to minutes) and starts the engine thread.
  static absl::StatusOr<std::unique_ptr<Engine>> create(const EngineConfig& config);

  // Checks the request and puts its sequences into the bounded queue. Prompt length + 1 must fit max_model_len (prompt length
  // alone when max_tokens = 0); max_tokens is clamped to what is left of the context.
  virtual absl::StatusOr<std::unique_ptr<Stream>> submit(Request request) = 0;

  // From now on submit says Unavailable; what runs goes on. Idempotent.
  virtual void drain() = 0;

  // Ends every sequence, running or waiting, with FinishReason::kAbort; those submitted meanwhile too. Returns at once, the
  // endings follow within a step.
  virtual void abort_all() = 0;

  virtual EngineStats stats() const = 0;
  virtual MeterSnapshot meters() const { return {}; }  // of the last second; empty for pools without a meter
  virtual GateStats gate() const { return {}; }            // of the last second
  virtual const ModelInfo& model() const = 0;
  virtual const PoolInfo& pool() const = 0;
  virtual const EngineConfig& config() const = 0;  // with every default resolved
};

}  // namespace assay
