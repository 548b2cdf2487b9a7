#include "server/http/error_reply.h"

#include <nlohmann/json.hpp>

#include "server/http/json_text.h"

namespace assay::http {
namespace {

Reply view_reply(const ErrorView& view) {
  Reply reply = json_reply(view.http_status, error_body(view));
  if (view.retry_after_s > 0) reply.headers.emplace_back("Retry-After", std::to_string(view.retry_after_s));
  if (view.http_status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  reply.log_message = view.message;
  return reply;
}

}  // namespace

std::string error_body(const ErrorView& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json body;
  body["error"] = {{"message", error.message}, {"type", error.type}, {"param", or_null(error.param)},
                   {"code", or_null(error.code)}};
  return to_text(body);
}

Reply error_reply(const absl::Status& status) { return view_reply(describe_error(status)); }

Reply transport_error(int http_status, std::string_view code, std::string_view message) {
  ErrorView view;
  view.http_status = http_status;
  view.type = http_status >= 500 ? "service_unavailable_error" : http_status == 408 ? "timeout_error" : "invalid_request_error";
  view.message = std::string(message);
  view.code = std::string(code);
  view.retry_after_s = http_status == 503 ? 1 : 0;
  return view_reply(view);
}

}  // namespace assay::http
