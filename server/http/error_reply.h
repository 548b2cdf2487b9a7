// The OpenAI error envelope, the same on every route and status.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/message.h"
#include "server/service/status.h"

namespace assay::http {

// {"error": {"message", "type", "param", "code"}}
std::string error_body(const ErrorView& error);

Reply error_reply(const absl::Status& status);

// Errors of the transport itself, which no absl::Status has a name for: 405, 413, 417, 431, ...
Reply transport_error(int http_status, std::string_view code, std::string_view message);

}  // namespace assay::http
