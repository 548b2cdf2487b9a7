#include "server/http/site.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/http/error_reply.h"

namespace assay::http {
namespace {

bool matches(const Route& route, std::string_view path) {
  if (route.path.size() >= 2 && route.path.ends_with("/*")) {
    const std::string_view prefix = std::string_view(route.path).substr(0, route.path.size() - 1);
    return path.size() > prefix.size() && path.substr(0, prefix.size()) == prefix;
  }
  return route.path == path;
}

void add_method(std::string& list, const std::string& method) { list += (list.empty() ? "" : ", ") + method; }

}  // namespace

Site::Site(std::vector<Route> routes, const std::vector<std::string>& api_keys, std::vector<std::string> allowed_origins,
           std::function<void(const AccessRecord&)> on_request)
    : routes_(std::move(routes)),
      keys_(api_keys),
      origins_(std::move(allowed_origins)),
      on_request_(std::move(on_request)) {}

std::variant<const Route*, Reply> Site::find(const HttpRequest& request) const {
  const Route* found = nullptr;
  std::string allowed;
  bool open = false;
  for (const Route& route : routes_) {
    if (!matches(route, request.path)) continue;
    add_method(allowed, route.method);
    if (route.method == "GET") add_method(allowed, "HEAD");
    open |= route.open;
    if (route.method == (request.method == "HEAD" ? "GET" : request.method)) found = &route;
  }
  if (request.method == "OPTIONS" && !allowed.empty()) {  // browsers send preflights without keys
    Reply reply;
    reply.status = 204;
    add_method(allowed, "OPTIONS");
    reply.headers = origins_.preflight_headers(request, allowed);
    reply.headers.emplace_back("Allow", allowed);
    return reply;
  }
  if (!open) {
    if (absl::Status status = keys_.check(request.header("Authorization")); !status.ok()) return error_reply(status);
  }
  if (found != nullptr) return found;
  if (allowed.empty()) {
    return error_reply(absl::NotFoundError(fmt::format("there is nothing at {} {}", request.method.substr(0, 32),
                                                       request.path.substr(0, 256))));
  }
  Reply reply = transport_error(405, "method_not_allowed", fmt::format("{} does not take {}; it takes {}", request.path,
                                                                       request.method.substr(0, 32), allowed));
  reply.headers.emplace_back("Allow", allowed);
  return reply;
}

void Site::add_common_headers(const HttpRequest& request, Headers& headers) const {
  headers.emplace_back("X-Request-Id", request.request_id);
  for (Header& header : origins_.reply_headers(request)) headers.push_back(std::move(header));
}

}  // namespace assay::http
