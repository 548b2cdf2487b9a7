// One engine over a model folder, and requests run on it to their end, one at a time.
//
// Owns: the engine. Threads: one caller. Errors: absl::Status as the engine says them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/api/engine.h"
#include "server/config/serve_config.h"
#include "server/text/tokenizer.h"

namespace assay {

// What is left when a request has ended well.
struct Completion {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::optional<CertificateReport> certificate;
  SequenceUsage usage;
};

class ModelRun {
 public:
  // `most_tokens`: of prompt and answer together, at most; `chunk`: tokens of a step (prefill in chunks of it);
  // `scores`: top log probabilities a request may ask for. One request runs at a time. The pool is calibrated on the
  // built-in text where the model folder has no file of `assay calibrate`.
  static absl::StatusOr<ModelRun> start(const ServeConfig& config, const Tokenizer& tokenizer, int64_t most_tokens,
                                        int64_t chunk, int32_t scores);

  absl::StatusOr<Completion> complete(Request request);

  const Engine& engine() const { return *engine_; }
  // Counted to the last cell of what has ended.
  MeterSnapshot meters() const;

 private:
  std::unique_ptr<Engine> engine_;
  int64_t metered_ = 0;  // cells of all requests with a report
};

}  // namespace assay
