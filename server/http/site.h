// Everything a connection needs to answer: routes, keys, origins, where handlers run, who is told of each request.
//
// Threads: immutable after construction; handlers run on worker threads or, when `quick`, on I/O threads.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "server/http/access.h"
#include "server/http/message.h"

namespace assay::http {

struct Route {
  std::string method;
  std::string path;     // exact, or a prefix when it ends in "/*"
  bool open = false;    // needs no API key
  bool quick = false;   // answers at once from memory: runs on the I/O thread, so it is never behind long work
  std::function<Reply(const HttpRequest&)> handler = nullptr;
};

// One finished request, for logs and metrics.
struct AccessRecord {
  std::string method;
  std::string route;  // path of the route; "none" for what matched none
  std::string request_id;
  std::string peer;
  std::string fields;   // key=value pairs of the handler
  std::string message;  // why it failed
  int status = 0;       // 499: the client left
  double seconds = 0.0;
  size_t reply_bytes = 0;
};

class Site {
 public:
  Site(std::vector<Route> routes, const std::vector<std::string>& api_keys, std::vector<std::string> allowed_origins,
       std::function<void(const AccessRecord&)> on_request);

  // The route to run, or the reply that needs none: 404, 405, 401, preflight. HEAD runs the GET route.
  std::variant<const Route*, Reply> find(const HttpRequest& request) const;

  // Headers every reply carries.
  void add_common_headers(const HttpRequest& request, Headers& headers) const;

  void record(const AccessRecord& record) const { on_request_(record); }

 private:
  std::vector<Route> routes_;
  KeyRing keys_;
  Origins origins_;
  std::function<void(const AccessRecord&)> on_request_;
};

}  // namespace assay::http
