// `assay doctor`: what would keep the server from starting well on this machine.
//
// Threads: any. Errors: each check says its own; nothing is changed.
#pragma once

#include <string>
#include <vector>

#include "server/config/serve_config.h"

namespace assay {

struct CheckResult {
  enum class Verdict { kGood, kWarning, kBad };
  Verdict verdict = Verdict::kGood;
  std::string name;
  std::string finding;
};

// Model folder (only where config.model is set), memory, CPU, ports, file descriptors.
std::vector<CheckResult> run_checks(const ServeConfig& config);

// One line per check.
std::string checks_text(const std::vector<CheckResult>& results);

}  // namespace assay
