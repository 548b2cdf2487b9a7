// Bytes of a connection -> requests, within limits. Drives the parser by hand, so that it is compiled once for all transports.
//
// Threads: the connection's strand.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <functional>
#include <optional>
#include <variant>

#include "server/http/connection.h"
#include "server/http/limits.h"
#include "server/http/message.h"
#include "server/http/request_body.h"

namespace assay::http {

class ReadDeadline;

struct ConnectionEnded {};

// A request that cannot be served as it stands: reply, then close.
struct BadRequest {
  Reply reply;
  HttpRequest request;  // as far as it is known, the id always
};

// The reply to a request that is refused by its head alone.
using HeadCheck = std::function<std::optional<Reply>(const HttpRequest&)>;

class RequestReader {
 public:
  // Who is refused by `head_check` gets to send no body (an invitation by 100-continue included).
  RequestReader(Connection& connection, const Limits& limits, BodyBudget& bodies, HeadCheck head_check)
      : connection_(connection), limits_(limits), body_lease_(bodies), head_check_(std::move(head_check)) {}

  // A request that has begun and does not arrive in time is a 408; a connection on which none begins just ends.
  asio::awaitable<std::variant<ConnectionEnded, BadRequest, HttpRequest>> next();

  // The body of the last request is gone.
  void release_body() { body_lease_.release(); }

  // Reads and drops what the client still sends, for a short while: a reply sent against a stream of data would be lost.
  asio::awaitable<void> discard_rest();

 private:
  asio::awaitable<error_code> read_more(size_t size);
  void begin_phase(ReadDeadline& deadline, std::chrono::milliseconds time);

  Connection& connection_;
  const Limits& limits_;
  BodyLease body_lease_;
  HeadCheck head_check_;
  boost::beast::flat_buffer buffer_;
};

// "/v1//models/?x=1" -> {"/v1/models", "x=1"}: percent signs decoded, doubled and trailing slashes dropped, absolute form cut.
// False when a percent escape is broken.
bool split_target(std::string_view target, std::string& path, std::string& query);

}  // namespace assay::http
