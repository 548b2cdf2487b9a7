#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "server/sweep/connection.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

class TcpConnection final : public Connection {
 public:
  explicit TcpConnection(asio::any_io_executor executor) : resolver_(executor), socket_(executor) {}

  asio::awaitable<Error> connect(const Target& target) override {
    auto [resolve_error, endpoints] = co_await resolver_.async_resolve(target.host, target.port, kTuple);
    if (resolve_error) co_return resolve_error;
    auto [error, endpoint] = co_await asio::async_connect(socket_, endpoints, kTuple);
    if (error) co_return error;
    Error ignored;  // only a loss of speed
    socket_.set_option(tcp::no_delay(true), ignored);
    co_return closed_ ? asio::error::operation_aborted : Error();
  }

  asio::awaitable<Error> write_all(asio::const_buffer bytes) override {
    auto [error, size] = co_await asio::async_write(socket_, bytes, kTuple);
    co_return error;
  }

  asio::awaitable<std::pair<Error, size_t>> read_some(asio::mutable_buffer bytes) override {
    auto [error, size] = co_await socket_.async_read_some(bytes, kTuple);
    co_return std::pair<Error, size_t>(error, size);
  }

  void close() override {
    closed_ = true;
    resolver_.cancel();
    Error ignored;
    socket_.close(ignored);
  }

 private:
  tcp::resolver resolver_;
  tcp::socket socket_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<Connection> make_tcp_connection(asio::any_io_executor executor) {
  return std::make_unique<TcpConnection>(std::move(executor));
}

}  // namespace assay::sweep
