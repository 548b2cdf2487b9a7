#include "server/eval/model_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "server/service/calibration_text.h"

namespace assay {
namespace {

using std::chrono::milliseconds;

int64_t metered_of(const MeterSnapshot& snapshot) {
  int64_t cells = 0;
  for (const HeadSnapshot& head : snapshot.heads) {
    for (const HeadCells& phase : head.cells) cells += phase.metered;
  }
  return cells;
}

}  // namespace

absl::StatusOr<ModelRun> ModelRun::start(const ServeConfig& config, const Tokenizer& tokenizer, int64_t most_tokens,
                                         int64_t chunk, int32_t scores) {
  EngineConfig wanted = engine_config(config);
  wanted.max_num_seqs = 1;
  wanted.max_num_batched_tokens = static_cast<int32_t>(chunk);
  wanted.max_model_len = static_cast<int32_t>(most_tokens);
  wanted.max_logprobs = scores;
  wanted.enable_prefix_caching = false;
  if (config.kv_pool != "exact") wanted.calibration_tokens = tokenizer.encode(calibration_text(), false);
  wanted.calibration_files = EngineConfig::CalibrationFiles::kUse;
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::create(wanted);
  if (!engine.ok()) return engine.status();
  ModelRun run;
  run.engine_ = *std::move(engine);
  return run;
}

absl::StatusOr<Completion> ModelRun::complete(Request request) {
  request.certificate.report = engine_->pool().has_meter();
  absl::StatusOr<std::unique_ptr<Stream>> stream = engine_->submit(std::move(request));
  if (!stream.ok()) return stream.status();
  Completion completion;
  while (true) {
    for (Event& event : (*stream)->wait(milliseconds(200))) {
      if (event.token) completion.tokens.push_back(*event.token);
      if (!event.prompt_logprobs.empty()) completion.prompt_logprobs = std::move(event.prompt_logprobs);
      if (!event.finish) continue;
      if (!event.status.ok()) return event.status;
      completion.usage = event.usage;
      completion.certificate = std::move(event.certificate);
      if (completion.certificate) {
        metered_ += completion.certificate->decode.metered + completion.certificate->prefill.metered;
      }
      return completion;
    }
  }
}

// The engine publishes the last cells shortly after the end of the last request.
MeterSnapshot ModelRun::meters() const {
  constexpr int kTries = 100;
  MeterSnapshot snapshot = engine_->meters();
  for (int i = 0; i < kTries && metered_of(snapshot) < metered_; ++i) {
    std::this_thread::sleep_for(milliseconds(30));
    snapshot = engine_->meters();
  }
  return snapshot;
}

}  // namespace assay
