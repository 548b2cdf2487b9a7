#include "server/http/error_reply.h"
#include "server/http/routes.h"

namespace assay::http {
namespace {

constexpr const char* kOpenMetrics = "application/openmetrics-text";

Reply status_reply(const absl::Status& status) {
  return status.ok() ? json_reply(200, R"({"status":"ok"})") : error_reply(status);
}

Reply metrics_reply(const Operations& operations, const HttpRequest& request) {
  const bool openmetrics = request.header("Accept").find(kOpenMetrics) != std::string_view::npos;
  Reply reply;
  reply.headers.emplace_back("Content-Type", openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                                         : "text/plain; version=0.0.4; charset=utf-8");
  reply.body = operations.metrics(openmetrics);
  return reply;
}

}  // namespace

std::vector<Route> health_routes(const Lifecycle& lifecycle, const Operations& operations) {
  std::vector<Route> routes(4);
  routes[0] = {"GET", "/health", true, true, [&lifecycle](const HttpRequest&) {
                 return status_reply(lifecycle.alive().status());
               }};
  routes[1] = {"GET", "/ready", true, true, [&lifecycle](const HttpRequest&) {
                 return status_reply(lifecycle.accepting().status());
               }};
  routes[2] = {"GET", "/version", true, true, [version = operations.version](const HttpRequest&) {
                 return json_reply(200, to_text({{"version", version}}));
               }};
  routes[3] = {"GET", "/metrics", !operations.metrics_auth, false, [&operations](const HttpRequest& request) {
                 return metrics_reply(operations, request);
               }};
  return routes;
}

std::vector<Route> information_routes(const Operations& operations) {
  std::vector<Route> routes(2);
  routes[0] = {"GET", "/server_info", false, true, [&operations](const HttpRequest&) {
                 return json_reply(200, to_text(operations.server_info()));
               }};
  routes[1] = {"GET", "/", false, true, [page = operations.live_page](const HttpRequest&) {
                 Reply reply;
                 reply.headers = {{"Content-Type", "text/html; charset=utf-8"}, {"Cache-Control", "no-cache"}};
                 reply.body = page;
                 return reply;
               }};
  return routes;
}

}  // namespace assay::http
