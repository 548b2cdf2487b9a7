#include "server/sweep/server_snapshot.h"

#include <nlohmann/json.hpp>

namespace assay::sweep {
namespace {

constexpr double kTimeoutS = 30.0;

boost::asio::awaitable<FetchedResponse> get(HttpClient& client, std::string path) {
  HttpRequest request{"GET", std::move(path), "", kTimeoutS};
  co_return co_await fetch(client, std::move(request));
}

boost::asio::awaitable<std::string> fetch_json(HttpClient& client, std::string path, std::vector<std::string>* notes) {
  const FetchedResponse response = co_await get(client, path);
  if (!response.ok()) {
    notes->push_back("no " + path + ": " + response.problem());
    co_return "";
  }
  if (!nlohmann::json::accept(response.body)) {
    notes->push_back("no " + path + ": the answer is not JSON");
    co_return "";
  }
  co_return response.body;
}

}  // namespace

boost::asio::awaitable<ServerDescription> describe_server(HttpClient& client) {
  ServerDescription server;
  server.version_json = co_await fetch_json(client, "/version", &server.notes);
  server.server_info_json = co_await fetch_json(client, "/server_info", &server.notes);
  const FetchedResponse metrics = co_await get(client, "/metrics");
  if (!metrics.ok()) server.notes.push_back("no /metrics: " + metrics.problem());
  co_return server;
}

boost::asio::awaitable<std::optional<MetricsSnapshot>> fetch_metrics(HttpClient& client) {
  const FetchedResponse response = co_await get(client, "/metrics");
  if (!response.ok()) co_return std::nullopt;
  co_return parse_metrics(response.body);
}

}  // namespace assay::sweep
