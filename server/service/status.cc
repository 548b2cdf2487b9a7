#include "server/service/status.h"

#include <array>

#include "absl/strings/cord.h"

namespace assay {
namespace {

constexpr const char* kParamPayload = "assay/param";
constexpr const char* kCodePayload = "assay/code";

struct Row {
  absl::StatusCode status;
  int http_status;
  const char* type;
  const char* code;
  int retry_after_s;
};

// SDKs retry 408, 409, 429 and >= 500: a client's own fault must not be among them.
constexpr std::array<Row, 13> kRows{{
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", "", 0},
    {absl::StatusCode::kOutOfRange, 400, "invalid_request_error", "", 0},
    {absl::StatusCode::kFailedPrecondition, 400, "invalid_request_error", "", 0},
    {absl::StatusCode::kUnimplemented, 400, "invalid_request_error", "unsupported", 0},
    {absl::StatusCode::kAlreadyExists, 400, "invalid_request_error", "", 0},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key", 0},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", "", 0},
    {absl::StatusCode::kNotFound, 404, "not_found_error", "not_found", 0},
    {absl::StatusCode::kDeadlineExceeded, 408, "timeout_error", "request_timeout", 0},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "queue_full", 1},
    {absl::StatusCode::kUnavailable, 503, "service_unavailable_error", "unavailable", 5},
    {absl::StatusCode::kCancelled, 503, "service_unavailable_error", "cancelled", 5},
    {absl::StatusCode::kInternal, 500, "server_error", "internal_error", 0},
}};

const Row& row_of(absl::StatusCode code) {
  for (const Row& row : kRows) {
    if (row.status == code) return row;
  }
  return kRows.back();
}

std::string payload(const absl::Status& status, const char* url) {
  const auto cord = status.GetPayload(url);
  return cord.has_value() ? std::string(*cord) : std::string();
}

}  // namespace

absl::Status field_error(std::string_view field, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(std::string(message));
  status.SetPayload(kParamPayload, absl::Cord(std::string(field)));
  return status;
}

absl::Status with_code(absl::Status status, std::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(std::string(code)));
  return status;
}

ErrorView describe_error(const absl::Status& status) {
  const Row& row = row_of(status.code());
  ErrorView view;
  view.http_status = row.http_status;
  view.type = row.type;
  view.message = std::string(status.message());
  view.param = payload(status, kParamPayload);
  view.code = payload(status, kCodePayload);
  if (view.code.empty()) view.code = row.code;
  view.retry_after_s = row.retry_after_s;
  return view;
}

}  // namespace assay
