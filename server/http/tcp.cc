#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include <poll.h>
#include <sys/socket.h>

#include "server/http/connection.h"

namespace assay::http {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// The client closed its end, or the connection broke; with bytes of a next request before that, poll still says so.
bool peer_closed(int socket) {
  pollfd entry{socket, POLLIN | POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

class TcpConnection final : public Connection {
 public:
  explicit TcpConnection(asio::ip::tcp::socket socket) : stream_(std::move(socket)) {}

  asio::awaitable<error_code> handshake() override { co_return error_code{}; }

  asio::awaitable<std::pair<error_code, size_t>> read_some(asio::mutable_buffer buffer) override {
    auto [error, size] = co_await stream_.async_read_some(buffer, kAwait);
    co_return std::pair<error_code, size_t>(error, size);
  }

  asio::awaitable<error_code> write_all(asio::const_buffer buffer) override {
    auto [error, size] = co_await asio::async_write(stream_, buffer, kAwait);
    co_return error;
  }

  asio::awaitable<void> peer_gone() override { return wait_until_peer_gone(stream_.socket()); }

  asio::awaitable<void> shutdown() override {
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    co_return;
  }

  void expire_after(std::chrono::steady_clock::duration time) override { stream_.expires_after(time); }
  void cancel_read() override {
    error_code ignored;
    stream_.socket().cancel(ignored);
  }
  asio::any_io_executor executor() override { return stream_.get_executor(); }

 private:
  boost::beast::tcp_stream stream_;
};

}  // namespace

asio::awaitable<void> wait_until_peer_gone(asio::ip::tcp::socket& socket) {
  asio::steady_timer pause(socket.get_executor());
  while (true) {
    auto [error] = co_await socket.async_wait(asio::ip::tcp::socket::wait_read, kAwait);
    if (error || peer_closed(socket.native_handle())) co_return;
    // Readable and open: a pipelined request waits. Look again from time to time.
    pause.expires_after(std::chrono::milliseconds(100));
    auto [cancelled] = co_await pause.async_wait(kAwait);
    if (cancelled) co_return;
  }
}

std::unique_ptr<Connection> make_tcp_connection(asio::ip::tcp::socket socket) {
  return std::make_unique<TcpConnection>(std::move(socket));
}

}  // namespace assay::http
