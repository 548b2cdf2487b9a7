// A status of one's own. Copies of an absl::Status share its message by a count that lives in a library built without
// ThreadSanitizer; what crosses threads is therefore built anew, which also keeps one stream's memory out of another's.
//
// Threads: any. Errors: none.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace assay {

inline absl::Status status_copy(const absl::Status& status) {
  return absl::Status(status.code(), std::string(status.message()));
}

}  // namespace assay
