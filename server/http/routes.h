// The routes of the API (docs/api.md): formats only, the work is the service's.
//
// Threads: the routes may run on any thread; what they refer to must outlive the server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/http/json_text.h"
#include "server/http/site.h"
#include "server/service/lifecycle.h"

namespace assay::http {

// What the operational routes show; filled by the composition root.
struct Operations {
  std::string version;
  std::string live_page;                                // HTML of /
  std::function<std::string(bool openmetrics)> metrics;  // exposition text
  std::function<Json()> server_info;
  bool metrics_auth = false;
};

// /v1/completions, /v1/chat/completions, /v1/models and /models.
std::vector<Route> openai_routes(const Lifecycle& lifecycle);
// /tokenize, /detokenize, /tokenizer_info.
std::vector<Route> tokenizer_routes(const Lifecycle& lifecycle);
// /health, /ready, /version, /metrics: also on --metrics-port.
std::vector<Route> health_routes(const Lifecycle& lifecycle, const Operations& operations);
// /server_info and /.
std::vector<Route> information_routes(const Operations& operations);

}  // namespace assay::http
