// One byte stream to the server; TCP, with TLS over it if asked.
//
// Owns: the socket. Threads: the executor's only thread. Errors: error codes, nothing throws.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <utility>

#include "server/sweep/options.h"

namespace assay::sweep {

class Connection {
 public:
  using Error = boost::system::error_code;

  virtual ~Connection() = default;
  virtual boost::asio::awaitable<Error> connect(const Target& target) = 0;
  virtual boost::asio::awaitable<Error> write_all(boost::asio::const_buffer bytes) = 0;
  virtual boost::asio::awaitable<std::pair<Error, size_t>> read_some(boost::asio::mutable_buffer bytes) = 0;
  // Ends whatever runs on it with an error. Idempotent.
  virtual void close() = 0;
};

std::unique_ptr<Connection> make_tcp_connection(boost::asio::any_io_executor executor);

// Verifies the server's certificate against the system's authorities.
std::unique_ptr<Connection> make_tls_connection(boost::asio::any_io_executor executor);

}  // namespace assay::sweep
