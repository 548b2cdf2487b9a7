// What the server says of itself beside the numbers: version, flags, pool, counters. Every route may be missing.
//
// Threads: the I/O thread. Errors: a missing or broken answer leaves its field empty and adds a note.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/sweep/http_client.h"
#include "server/sweep/metrics_text.h"

namespace assay::sweep {

struct ServerDescription {
  std::string version_json;      // of /version; empty: none
  std::string server_info_json;  // of /server_info; empty: none
  std::vector<std::string> notes;
};

boost::asio::awaitable<ServerDescription> describe_server(HttpClient& client);

// Of /metrics; nothing where there is none.
boost::asio::awaitable<std::optional<MetricsSnapshot>> fetch_metrics(HttpClient& client);

}  // namespace assay::sweep
