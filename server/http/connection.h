// One accepted connection, whatever its transport. Implementations: tcp.cc, tls.cc, each compiled alone (toolchain costs).
//
// Threads: everything on the connection's own strand.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace assay::http {

namespace asio = boost::asio;
using boost::system::error_code;

class Connection {
 public:
  virtual ~Connection() = default;

  virtual asio::awaitable<error_code> handshake() = 0;
  virtual asio::awaitable<std::pair<error_code, size_t>> read_some(asio::mutable_buffer buffer) = 0;
  virtual asio::awaitable<error_code> write_all(asio::const_buffer buffer) = 0;
  // Completes when the client has closed its end. Bytes of a next request keep it waiting.
  virtual asio::awaitable<void> peer_gone() = 0;
  // Sends what is left and tells the client that nothing follows.
  virtual asio::awaitable<void> shutdown() = 0;
  // Reads and writes that begin from now on fail, and the connection closes, after this long without completion.
  virtual void expire_after(std::chrono::steady_clock::duration time) = 0;
  // Ends the read that is under way with operation_aborted; the connection stays.
  virtual void cancel_read() = 0;
  virtual asio::any_io_executor executor() = 0;
};

std::unique_ptr<Connection> make_tcp_connection(asio::ip::tcp::socket socket);
std::unique_ptr<Connection> make_tls_connection(asio::ip::tcp::socket socket, asio::ssl::context& context);

// Shared by both: waits on the socket itself.
asio::awaitable<void> wait_until_peer_gone(asio::ip::tcp::socket& socket);

}  // namespace assay::http
