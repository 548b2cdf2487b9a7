// Any bytes as what a client sends: the reader gives requests or refusals within its limits, and the same requests however the
// bytes are cut into reads (a request that only one way of reading sees is how requests are smuggled).
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/request_reader.h"

namespace {

namespace http = assay::http;
namespace asio = boost::asio;

// Gives the bytes in pieces of at most `piece`, then the end.
class MemoryConnection final : public http::Connection {
 public:
  MemoryConnection(asio::any_io_executor executor, std::string_view bytes, size_t piece)
      : executor_(std::move(executor)), bytes_(bytes), piece_(piece) {}

  asio::awaitable<http::error_code> handshake() override { co_return http::error_code{}; }
  asio::awaitable<std::pair<http::error_code, size_t>> read_some(asio::mutable_buffer buffer) override {
    const size_t size = std::min({buffer.size(), bytes_.size(), piece_});
    std::memcpy(buffer.data(), bytes_.data(), size);
    bytes_.remove_prefix(size);
    http::error_code error;
    if (size == 0) error = asio::error::eof;
    co_return std::pair<http::error_code, size_t>(error, size);
  }
  asio::awaitable<http::error_code> write_all(asio::const_buffer) override { co_return http::error_code{}; }
  asio::awaitable<void> peer_gone() override { co_return; }
  asio::awaitable<void> shutdown() override { co_return; }
  void expire_after(std::chrono::steady_clock::duration) override {}
  void cancel_read() override {}
  asio::any_io_executor executor() override { return executor_; }

 private:
  asio::any_io_executor executor_;
  std::string_view bytes_;
  size_t piece_;
};

void check(bool holds) {
  if (!holds) std::abort();
}

void check_request(const http::HttpRequest& request, const http::Limits& limits) {
  check(!request.method.empty() && !request.request_id.empty() && request.request_id.size() <= 128);
  check(request.body.size() <= limits.max_body_bytes);
  check(request.headers.size() <= static_cast<size_t>(limits.max_headers));
}

asio::awaitable<void> read_all(http::Connection& connection, const http::Limits& limits, std::vector<std::string>& seen) {
  http::BodyBudget bodies(1 << 20);
  const auto no_body_wanted = [](const http::HttpRequest& request) {
    return request.path == "/refused" ? std::optional<http::Reply>(http::Reply{}) : std::nullopt;
  };
  http::RequestReader reader(connection, limits, bodies, no_body_wanted);
  while (true) {
    auto outcome = co_await reader.next();
    if (auto* bad = std::get_if<http::BadRequest>(&outcome)) check(!bad->request.request_id.empty());
    auto* request = std::get_if<http::HttpRequest>(&outcome);
    if (request == nullptr || request->path == "/refused") co_return;  // where the body is there already, the session refuses
    check_request(*request, limits);
    seen.push_back(request->method + ' ' + request->path + '?' + request->query + '\n' + request->body);
    reader.release_body();
  }
}

std::vector<std::string> requests_of(std::string_view bytes, size_t piece) {
  asio::io_context context(1);
  http::Limits limits;
  limits.max_body_bytes = 16 * 1024;
  MemoryConnection connection(context.get_executor(), bytes, piece);
  std::vector<std::string> seen;
  asio::co_spawn(context, read_all(connection, limits, seen), [](const std::exception_ptr& error) { check(error == nullptr); });
  context.run();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), std::min<size_t>(size, 32 * 1024));
  const std::vector<std::string> whole = requests_of(bytes, bytes.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    if (piece == 1 && bytes.size() > 2048) continue;
    const std::vector<std::string> cut = requests_of(bytes, piece);
    if (cut == whole) continue;
    for (const std::string& request : whole) std::fprintf(stderr, "whole: %s\n", request.c_str());
    for (const std::string& request : cut) std::fprintf(stderr, "by %zu: %s\n", piece, request.c_str());
    std::abort();
  }
  return 0;
}
