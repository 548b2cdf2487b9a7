#include "server/http/request_reader.h"

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <fmt/format.h>

#include <iterator>
#include <stdexcept>

#include "server/http/error_reply.h"
#include "server/http/read_deadline.h"
#include "server/service/request_id.h"

namespace assay::http {
namespace {

namespace beast_http = boost::beast::http;
using Parser = beast_http::request_parser<GrowingBody>;

// The connection's own timeout closes it without a word; it must not come before a deadline that is answered.
constexpr auto kAnswerMargin = std::chrono::seconds(10);
constexpr size_t kHeaderRead = 4 * 1024;
constexpr size_t kBodyRead = 64 * 1024;

Reply parse_failure(error_code error, const Limits& limits) {
  if (error == beast_http::error::header_limit) {
    return transport_error(431, "headers_too_large", fmt::format("the request headers are above {} bytes",
                                                                 limits.max_header_bytes));
  }
  if (error == beast_http::error::body_limit) {
    return transport_error(413, "body_too_large", fmt::format("the request body is above {} bytes (--max-body-bytes)",
                                                              limits.max_body_bytes));
  }
  if (error == beast_http::error::bad_version) return transport_error(505, "http_version", "this server speaks HTTP/1.1");
  return transport_error(400, "bad_http", "not a valid HTTP request: " + error.message());
}

BadRequest refuse(Reply reply, HttpRequest request) {
  if (request.request_id.empty()) request.request_id = make_request_id();
  request.body.clear();
  return BadRequest{std::move(reply), std::move(request)};
}

Reply too_slow(bool head_done, const Limits& limits) {
  const auto time = head_done ? limits.body_timeout : limits.header_timeout;
  return transport_error(408, "request_timeout",
                         fmt::format("the request's {} took longer than {:g} s to arrive", head_done ? "body" : "headers",
                                     std::chrono::duration<double>(time).count()));
}

Reply bodies_over_budget() {
  return transport_error(503, "too_many_bodies", "the request bodies that are being received fill the memory set aside for "
                                                 "them; try again later");
}

// A parser that finds itself in a state it thought impossible throws (asio_impl.cc); the bytes are at fault all the same.
size_t put(Parser& parser, const asio::const_buffer& bytes, error_code& error) {
  try {
    return parser.put(bytes, error);
  } catch (const std::logic_error&) {
    error = beast_http::error::bad_chunk;
    return 0;
  }
}

// The request without its body, or why it is refused.
std::variant<BadRequest, HttpRequest> read_head(const Parser& parser, const Limits& limits) {
  const auto& message = parser.get();
  HttpRequest request;
  const auto id = message.find("X-Request-Id");
  request.request_id = clean_request_id(id == message.end() ? std::string_view() : std::string_view(id->value()));
  if (std::distance(message.begin(), message.end()) > limits.max_headers) {
    return refuse(transport_error(431, "too_many_headers", fmt::format("more than {} headers", limits.max_headers)),
                  std::move(request));
  }
  for (const auto& field : message) request.headers.emplace_back(field.name_string(), field.value());
  request.method = std::string(message.method_string());
  request.http_1_0 = message.version() < 11;
  request.keep_alive = parser.keep_alive();
  if (!split_target(message.target(), request.path, request.query)) {
    return refuse(transport_error(400, "bad_path", "the path has a broken percent escape"), std::move(request));
  }
  // Any other coding, or a list, would leave the length of the body to interpretation: the way to smuggle a second request.
  if (message.count("Transfer-Encoding") > 0 &&
      (message.count("Transfer-Encoding") > 1 || !equals_ignoring_case(request.header("Transfer-Encoding"), "chunked"))) {
    return refuse(transport_error(501, "transfer_encoding", "the only transfer encoding known here is chunked"),
                  std::move(request));
  }
  if (message.count("Host") > 1) {
    return refuse(transport_error(400, "bad_host", "a request has one Host header"), std::move(request));
  }
  const std::string_view encoding = request.header("Content-Encoding");
  if (!encoding.empty() && !equals_ignoring_case(encoding, "identity")) {
    return refuse(transport_error(415, "content_encoding", "compressed request bodies are not supported"),
                  std::move(request));
  }
  const std::string_view expect = request.header("Expect");
  if (!expect.empty() && !equals_ignoring_case(expect, "100-continue")) {
    return refuse(transport_error(417, "expectation_failed", "the only expectation known here is 100-continue"),
                  std::move(request));
  }
  return request;
}

}  // namespace

asio::awaitable<error_code> RequestReader::read_more(size_t size) {
  auto [error, read] = co_await connection_.read_some(buffer_.prepare(size));
  buffer_.commit(read);
  co_return error;
}

void RequestReader::begin_phase(ReadDeadline& deadline, std::chrono::milliseconds time) {
  deadline.set(time);
  connection_.expire_after(time + kAnswerMargin);
}

asio::awaitable<std::variant<ConnectionEnded, BadRequest, HttpRequest>> RequestReader::next() {
  Parser parser;
  parser.header_limit(limits_.max_header_bytes);
  parser.body_limit(limits_.max_body_bytes);
  parser.eager(true);
  HttpRequest request;
  ReadDeadline deadline(connection_);
  bool head_done = false, timed = false;
  connection_.expire_after(limits_.idle_timeout);
  while (true) {
    if (buffer_.size() > 0) {
      if (!timed) begin_phase(deadline, limits_.header_timeout);
      timed = true;
      error_code error;
      buffer_.consume(put(parser, buffer_.data(), error));
      if (error && error != beast_http::error::need_more) co_return refuse(parse_failure(error, limits_), std::move(request));
      if (!body_lease_.grow_to(parser.get().body().size())) co_return refuse(bodies_over_budget(), std::move(request));
    }
    // What the parser leaves is an unfinished line: a chunk extension or trailers. Those are bounded like headers.
    if (head_done && !parser.is_done() && buffer_.size() > limits_.max_header_bytes) {
      co_return refuse(transport_error(431, "headers_too_large",
                                       fmt::format("chunk extensions or trailers are above {} bytes", limits_.max_header_bytes)),
                       std::move(request));
    }
    if (!head_done && parser.is_header_done()) {
      head_done = true;
      auto head = read_head(parser, limits_);
      if (auto* bad = std::get_if<BadRequest>(&head)) co_return std::move(*bad);
      request = std::get<HttpRequest>(std::move(head));
      if (!parser.is_done()) {
        if (std::optional<Reply> reply = head_check_(request)) co_return refuse(*std::move(reply), std::move(request));
      }
      begin_phase(deadline, limits_.body_timeout);
      if (!parser.is_done() && !request.header("Expect").empty() && !request.http_1_0) {
        const std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        const error_code error = co_await connection_.write_all(asio::buffer(go_on));
        if (error) co_return ConnectionEnded{};
      }
    }
    if (parser.is_done()) break;
    error_code error;
    if (!deadline.passed()) error = co_await read_more(head_done ? kBodyRead : kHeaderRead);
    if (deadline.passed()) co_return refuse(too_slow(head_done, limits_), std::move(request));
    if (error) co_return ConnectionEnded{};
  }
  request.body = std::move(parser.get().body());
  if (buffer_.size() == 0) buffer_ = boost::beast::flat_buffer();  // thousands of streams wait with an empty one
  co_return request;
}

asio::awaitable<void> RequestReader::discard_rest() {
  connection_.expire_after(std::chrono::seconds(5));
  for (size_t total = 0; total < (size_t{256} << 20); total += buffer_.size()) {
    buffer_.clear();
    const error_code error = co_await read_more(kBodyRead);
    if (error) co_return;
  }
}

}  // namespace assay::http
