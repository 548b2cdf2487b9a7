// Several results.json laid over each other: one table of the figures level by level, one picture of all curves.
//
// Threads: pure but for the files. Errors: the file that cannot be read, and why.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sweep/frontier.h"
#include "server/sweep/options.h"

namespace assay::sweep {

// Equal labels get the number of their file, so that curves can be told apart.
absl::StatusOr<std::vector<FrontierRun>> load_runs(const std::vector<std::string>& files);

// Rows by level, the first run's order first; where the first run has the level too, ratios to it.
std::string comparison_table(const std::vector<FrontierRun>& runs);

// Prints the table and writes the picture; the process's exit status.
int run_compare(const CompareOptions& options);

}  // namespace assay::sweep
