// Bytes of a connection -> requests, within limits. Drives the parser by hand, so that it is compiled once for all transports.
//
// Threads: the connection's strand.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <variant>

#include "server/http/connection.h"
#include "server/http/limits.h"
#include "server/http/message.h"

namespace assay::http {

struct ConnectionEnded {};

// A request that cannot be served as it stands: reply, then close.
struct BadRequest {
  Reply reply;
  std::string request_id;
};

class RequestReader {
 public:
  RequestReader(Connection& connection, const Limits& limits) : connection_(connection), limits_(limits) {}

  asio::awaitable<std::variant<ConnectionEnded, BadRequest, HttpRequest>> next();

  // Reads and drops what the client still sends, for a short while: a reply sent against a stream of data would be lost.
  asio::awaitable<void> discard_rest();

 private:
  asio::awaitable<error_code> read_more(size_t size);

  Connection& connection_;
  const Limits& limits_;
  boost::beast::flat_buffer buffer_;
};

// "/v1//models/?x=1" -> {"/v1/models", "x=1"}: percent signs decoded, doubled and trailing slashes dropped, absolute form cut.
// False when a percent escape is broken.
bool split_target(std::string_view target, std::string& path, std::string& query);

}  // namespace assay::http
