// `assay doctor [DIR] [flags of serve]`.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "server/commands.h"
#include "server/config/load.h"
#include "server/ops/doctor.h"

namespace assay {

int run_doctor(int argc, char** argv) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  absl::StatusOr<LoadedConfig> loaded = load_config(std::vector<std::string>(argv + 1, argv + argc), environment);
  if (!loaded.ok()) {
    std::fprintf(stderr, "assay doctor: %s\n", std::string(loaded.status().message()).c_str());
    return 2;
  }
  if (loaded->help) {
    std::puts("assay doctor [DIR] [flags of serve]: checks the model folder, memory, CPU and ports that serve would use.");
    return 0;
  }
  const std::vector<CheckResult> results = run_checks(loaded->config);
  std::fputs(checks_text(results).c_str(), stdout);
  for (const CheckResult& result : results) {
    if (result.verdict == CheckResult::Verdict::kBad) return 1;
  }
  return 0;
}

}  // namespace assay
