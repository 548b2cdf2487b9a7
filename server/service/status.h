// One table from absl::Status to what clients of every protocol see. The text of an error is the same everywhere.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace assay {

// InvalidArgument that names the request field at fault: becomes `param` of the OpenAI error object.
absl::Status field_error(std::string_view field, std::string_view message);

// Adds a machine-readable OpenAI error code ("model_not_found", "context_length_exceeded", ...) to a status.
absl::Status with_code(absl::Status status, std::string_view code);

// How one status looks to a client. `param` and `code` are empty where there is none (JSON null).
struct ErrorView {
  int http_status = 500;
  std::string type;
  std::string message;
  std::string param;
  std::string code;
  int retry_after_s = 0;  // 0 = no Retry-After
};

// `status` must not be OK.
ErrorView describe_error(const absl::Status& status);

}  // namespace assay
