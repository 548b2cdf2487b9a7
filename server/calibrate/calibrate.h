// `assay calibrate`: fits the compressed pools to the operator's own text, and says what their meters make of it.
//
// Threads: blocks the caller. Errors: printed to stderr; exit status 1 where it failed, 2 on bad usage.
#pragma once

#include <string>
#include <vector>

#include "engine/api/calibration.h"

namespace assay {

// argv[0] is the subcommand's name.
int run_calibrate(int argc, char** argv);

// One pool of --suggest. `problem`: why it has no scores.
struct Suggestion {
  std::string spec;
  std::string problem;
  MeterScores scores;
};

std::string calibration_text_report(const CalibrationSummary& summary, const std::vector<Suggestion>& suggestions);
std::string calibration_json_report(const CalibrationSummary& summary, const std::vector<Suggestion>& suggestions);

}  // namespace assay
