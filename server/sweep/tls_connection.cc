#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "server/sweep/connection.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

// One per process: loading the system's authorities takes milliseconds, which belong to no request.
asio::ssl::context& client_context() {
  static asio::ssl::context context = [] {
    asio::ssl::context made(asio::ssl::context::tls_client);
    Connection::Error ignored;  // without authorities every handshake fails and says so
    made.set_default_verify_paths(ignored);
    made.set_verify_mode(asio::ssl::verify_peer, ignored);
    return made;
  }();
  return context;
}

class TlsConnection final : public Connection {
 public:
  explicit TlsConnection(asio::any_io_executor executor) : resolver_(executor), stream_(executor, client_context()) {}

  asio::awaitable<Error> connect(const Target& target) override {
    auto [resolve_error, endpoints] = co_await resolver_.async_resolve(target.host, target.port, kTuple);
    if (resolve_error) co_return resolve_error;
    auto [error, endpoint] = co_await asio::async_connect(stream_.next_layer(), endpoints, kTuple);
    if (error) co_return error;
    Error ignored;
    stream_.next_layer().set_option(tcp::no_delay(true), ignored);
    SSL_set_tlsext_host_name(stream_.native_handle(), target.host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(target.host), ignored);
    auto [handshake_error] = co_await stream_.async_handshake(asio::ssl::stream_base::client, kTuple);
    co_return handshake_error;
  }

  asio::awaitable<Error> write_all(asio::const_buffer bytes) override {
    auto [error, size] = co_await asio::async_write(stream_, bytes, kTuple);
    co_return error;
  }

  asio::awaitable<std::pair<Error, size_t>> read_some(asio::mutable_buffer bytes) override {
    auto [error, size] = co_await stream_.async_read_some(bytes, kTuple);
    co_return std::pair<Error, size_t>(error, size);
  }

  void close() override {
    resolver_.cancel();
    Error ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  tcp::resolver resolver_;
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Connection> make_tls_connection(asio::any_io_executor executor) {
  return std::make_unique<TlsConnection>(std::move(executor));
}

}  // namespace assay::sweep
