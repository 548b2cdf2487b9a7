#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "server/http/connection.h"

namespace assay::http {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class TlsConnection final : public Connection {
 public:
  TlsConnection(asio::ip::tcp::socket socket, asio::ssl::context& context)
      : stream_(boost::beast::tcp_stream(std::move(socket)), context) {}

  asio::awaitable<error_code> handshake() override {
    auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kAwait);
    co_return error;
  }

  asio::awaitable<std::pair<error_code, size_t>> read_some(asio::mutable_buffer buffer) override {
    auto [error, size] = co_await stream_.async_read_some(buffer, kAwait);
    co_return std::pair<error_code, size_t>(error, size);
  }

  asio::awaitable<error_code> write_all(asio::const_buffer buffer) override {
    auto [error, size] = co_await asio::async_write(stream_, buffer, kAwait);
    co_return error;
  }

  asio::awaitable<void> peer_gone() override { return wait_until_peer_gone(stream_.next_layer().socket()); }

  asio::awaitable<void> shutdown() override {
    stream_.next_layer().expires_after(std::chrono::seconds(2));
    (void)co_await stream_.async_shutdown(kAwait);
  }

  void expire_after(std::chrono::steady_clock::duration time) override { stream_.next_layer().expires_after(time); }
  void cancel_read() override {
    error_code ignored;
    stream_.next_layer().socket().cancel(ignored);
  }
  asio::any_io_executor executor() override { return stream_.get_executor(); }

 private:
  asio::ssl::stream<boost::beast::tcp_stream> stream_;
};

}  // namespace

std::unique_ptr<Connection> make_tls_connection(asio::ip::tcp::socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsConnection>(std::move(socket), context);
}

}  // namespace assay::http
