// HTTP/1.1 over one pool of kept-alive connections; every exchange is a coroutine, none needs a thread.
//
// Owns: the idle connections. Threads: the io_context's only thread.
// Errors: each exchange ends in a TransferEnd; nothing throws. A kept-alive connection that the server closed before
// one byte of the answer is replaced by another one: that is the protocol's normal race. The request is marked as
// resent, and the time it cost stays in its latency.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/sweep/connection.h"
#include "server/sweep/load_client.h"
#include "server/sweep/transfer.h"

namespace assay::sweep {

// The only clock of a run, so that no two can disagree. Zero is its construction or the last restart().
class RunClock {
 public:
  void restart() { zero_ = std::chrono::steady_clock::now(); }
  double now_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - zero_).count(); }
  std::chrono::steady_clock::time_point at(double seconds) const {
    return zero_ +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  }

 private:
  std::chrono::steady_clock::time_point zero_ = std::chrono::steady_clock::now();
};

struct HttpRequest {
  std::string method;       // GET or POST
  std::string path;         // below the target's base path, e.g. "/v1/models"
  std::string body;         // JSON, for POST
  double timeout_s = 60.0;  // for the whole exchange
};

class HttpClient final : public LoadClient {
 public:
  HttpClient(boost::asio::io_context& io, Target target, std::string api_key, const RunClock& clock);
  ~HttpClient() override;

  boost::asio::awaitable<TransferEnd> send(const LoadRequest& request, double timeout_s, StreamRecorder& recorder) override;
  boost::asio::awaitable<TransferEnd> exchange(HttpRequest request, ResponseSink& sink);

 private:
  struct Attempt;

  std::unique_ptr<Connection> take_idle();
  boost::asio::awaitable<void> run(const std::string& message, ResponseSink& sink, Attempt& attempt);
  boost::asio::awaitable<void> read_response(ResponseSink& sink, Attempt& attempt);
  std::string serialize(const HttpRequest& request) const;

  boost::asio::io_context& io_;
  Target target_;
  std::string api_key_;
  const RunClock& clock_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

// A whole response in memory, for the small side requests.
struct FetchedResponse {
  TransferEnd end;
  int status = 0;
  std::string body;
  bool ok() const { return end.error == TransferError::kNone && status == 200; }
  std::string problem() const;  // of !ok(), one phrase
};

boost::asio::awaitable<FetchedResponse> fetch(HttpClient& client, HttpRequest request);

}  // namespace assay::sweep
