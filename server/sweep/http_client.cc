#include "server/sweep/http_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/sweep/http_response.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
constexpr size_t kReadBytes = 16u << 10;
constexpr size_t kMaxFetchedBytes = 64u << 20;

TransferError classify(const Connection::Error& error) {
  if (error == asio::error::connection_reset || error == asio::error::broken_pipe)
    return TransferError::kConnectionReset;
  return TransferError::kClosedEarly;
}

}  // namespace

// One try to send and receive on one connection.
struct HttpClient::Attempt {
  std::unique_ptr<Connection> connection;
  bool reused = false;
  bool connected = false;
  bool got_anything = false;
  bool keep_alive = false;
  bool timed_out = false;
  TransferEnd end;

  void fail(TransferError error, std::string detail) {
    end = {timed_out ? TransferError::kTimeout : error, std::move(detail)};
  }
};

HttpClient::HttpClient(asio::io_context& io, Target target, std::string api_key, const RunClock& clock)
    : io_(io), target_(std::move(target)), api_key_(std::move(api_key)), clock_(clock) {}
HttpClient::~HttpClient() = default;

std::unique_ptr<Connection> HttpClient::take_idle() {
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Connection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

std::string HttpClient::serialize(const HttpRequest& request) const {
  const bool ipv6 = target_.host.find(':') != std::string::npos;
  std::string message =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}{}{}:{}\r\nUser-Agent: assay-sweep\r\n", request.method,
                  target_.base_path, request.path, ipv6 ? "[" : "", target_.host, ipv6 ? "]" : "", target_.port);
  if (!api_key_.empty()) message += fmt::format("Authorization: Bearer {}\r\n", api_key_);
  if (request.method == "POST") {
    message += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.size());
  }
  return message + "\r\n" + request.body;
}

asio::awaitable<TransferEnd> HttpClient::send(const LoadRequest& request, double timeout_s, StreamRecorder& recorder) {
  return exchange({"POST", request.path, request.body, timeout_s}, recorder);
}

asio::awaitable<TransferEnd> HttpClient::exchange(HttpRequest request, ResponseSink& sink) {
  const std::string message = serialize(request);
  asio::steady_timer deadline(io_);
  deadline.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(request.timeout_s)));
  bool timed_out = false, resent = false;
  while (true) {
    // Shared with the timer's handler, which may already be queued when the attempt is over.
    const auto attempt = std::make_shared<Attempt>();
    attempt->timed_out = timed_out;
    attempt->connection = take_idle();
    attempt->reused = attempt->connection != nullptr;
    if (!attempt->reused) {
      attempt->connection =
          target_.tls ? make_tls_connection(io_.get_executor()) : make_tcp_connection(io_.get_executor());
    }
    deadline.async_wait([attempt](const Connection::Error& error) {
      if (error || attempt->connection == nullptr) return;
      attempt->timed_out = true;
      attempt->connection->close();
    });
    co_await run(message, sink, *attempt);
    deadline.cancel();
    timed_out = attempt->timed_out;
    std::unique_ptr<Connection> connection = std::move(attempt->connection);
    const bool failed = attempt->end.error != TransferError::kNone;
    if (failed && attempt->reused && !attempt->got_anything && !timed_out) {
      resent = true;
      continue;
    }
    if (attempt->keep_alive && !timed_out) idle_.push_back(std::move(connection));
    attempt->end.resent = resent;
    co_return attempt->end;
  }
}

asio::awaitable<void> HttpClient::run(const std::string& message, ResponseSink& sink, Attempt& attempt) {
  if (!attempt.reused) {
    const Connection::Error error = co_await attempt.connection->connect(target_);
    if (error) {
      const bool refused = error == asio::error::connection_refused;
      attempt.fail(refused ? TransferError::kConnectionRefused : TransferError::kConnectFailed, error.message());
      co_return;
    }
  }
  const Connection::Error error = co_await attempt.connection->write_all(asio::buffer(message));
  // A server may refuse a request before it has read all of it: what it says then is worth more than the failed write.
  if (error && error != asio::error::broken_pipe && error != asio::error::connection_reset) {
    attempt.fail(classify(error), error.message());
    co_return;
  }
  co_await read_response(sink, attempt);
}

asio::awaitable<void> HttpClient::read_response(ResponseSink& sink, Attempt& attempt) {
  double now_s = 0.0;
  HttpResponseParser parser({[&](int status, std::string_view type) { return sink.on_header(status, type, now_s); },
                             [&](std::string_view body) { return sink.on_body(body, now_s); }});
  std::array<char, kReadBytes> buffer;
  while (!parser.done()) {
    auto [error, size] = co_await attempt.connection->read_some(asio::buffer(buffer));
    now_s = clock_.now_s();
    parser.feed({buffer.data(), size});
    attempt.got_anything = parser.got_anything();
    if (error == asio::error::eof) parser.feed_end_of_stream();
    if (parser.stopped()) co_return attempt.fail(TransferError::kStopped, "");
    if (parser.failed()) co_return attempt.fail(TransferError::kMalformedHttp, parser.reason());
    if (error && !parser.done()) co_return attempt.fail(classify(error), error.message());
  }
  attempt.keep_alive = parser.keep_alive();
}

std::string FetchedResponse::problem() const {
  switch (end.error) {
    case TransferError::kNone:
      return fmt::format("status {}", status);
    case TransferError::kTimeout:
      return "no answer in time";
    case TransferError::kStopped:
      return "answer too large";
    default:
      return end.detail.empty() ? "connection failed" : end.detail;
  }
}

namespace {

class BodyCollector final : public ResponseSink {
 public:
  explicit BodyCollector(FetchedResponse* response) : response_(response) {}
  bool on_header(int status, std::string_view, double) override {
    response_->status = status;
    return true;
  }
  bool on_body(std::string_view bytes, double) override {
    response_->body.append(bytes);
    return response_->body.size() <= kMaxFetchedBytes;
  }

 private:
  FetchedResponse* response_;
};

}  // namespace

asio::awaitable<FetchedResponse> fetch(HttpClient& client, HttpRequest request) {
  FetchedResponse response;
  BodyCollector collector(&response);
  response.end = co_await client.exchange(std::move(request), collector);
  co_return response;
}

}  // namespace assay::sweep
