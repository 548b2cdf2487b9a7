// `assay eval perplexity` and `assay eval divergence`: the operator's own text through each pool, every token given.
//
// The text is cut into windows that do not overlap; a window goes through the model in chunks. The rows of a chunk are
// exact while it is computed, all earlier ones are read as the pool stores them: the smaller the chunk, the closer to
// decoding. Threads: one caller. Errors: those of the engine.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/config/serve_config.h"
#include "server/eval/eval_types.h"
#include "server/text/tokenizer.h"

namespace assay {

struct TextOptions {
  int64_t context = 0;  // tokens of a window
  int64_t chunk = 0;
  int64_t tokens = 0;  // of the text, at most; 0 = all
  // Whole distributions against those of the first pool, whose engine then runs beside each other one.
  bool divergence = false;
};

absl::StatusOr<std::vector<TextResult>> run_teacher_forced(const ServeConfig& config,
                                                           const std::vector<std::string>& specs,
                                                           const Tokenizer& tokenizer, const std::string& text,
                                                           const TextOptions& options, const Progress& progress);

}  // namespace assay
