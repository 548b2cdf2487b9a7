// Runs requests on one pool and adds up what they cost and what their certificates say.
//
// Threads: one caller. Errors: those of the engine.
#pragma once

#include <string>

#include "server/eval/eval_types.h"
#include "server/eval/model_run.h"

namespace assay {

void add_cells(const CertificateCells& cells, CertificateCells& to);

class PoolMeter {
 public:
  PoolMeter(const std::string& spec, ModelRun& run);  // `run` outlives it

  absl::StatusOr<Completion> complete(Request request);
  PoolMeasure finish();  // once, at the end

 private:
  ModelRun& run_;
  PoolMeasure measure_;
};

}  // namespace assay
