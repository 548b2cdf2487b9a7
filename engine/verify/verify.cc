#include "engine/api/verify.h"

#include <algorithm>
#include <iterator>

#include "engine/verify/tally.h"

namespace assay {

bool VerifyReport::ok() const {
  return !checks.empty() && std::all_of(checks.begin(), checks.end(), [](const VerifyCheck& check) {
    return check.checks > 0 && check.violations == 0;
  });
}

VerifyReport run_verify(const VerifyOptions& options) {
  VerifyReport report;
  for (const auto part : {verify_bounds, verify_transform, verify_codecs, verify_kernels}) {
    std::vector<VerifyCheck> checks = part(options);
    std::move(checks.begin(), checks.end(), std::back_inserter(report.checks));
  }
  return report;
}

}  // namespace assay
