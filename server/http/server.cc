#include "server/http/server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "server/http/connection.h"
#include "server/http/error_reply.h"
#include "server/http/head_text.h"
#include "server/http/session.h"

namespace assay::http {
namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

absl::Status load_certificate(const ServerOptions& options, asio::ssl::context& context) {
  error_code error;
  context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                          asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1,
                      error);
  context.use_certificate_chain_file(options.certificate_file, error);
  if (error) {
    return absl::InvalidArgumentError(fmt::format("--ssl-certfile {}: {}", options.certificate_file, error.message()));
  }
  context.use_private_key_file(options.key_file, asio::ssl::context::pem, error);
  if (error) return absl::InvalidArgumentError(fmt::format("--ssl-keyfile {}: {}", options.key_file, error.message()));
  return absl::OkStatus();
}

struct ConnectionCount {
  explicit ConnectionCount(std::atomic<int>& count) : count_(&count) {}
  ConnectionCount(ConnectionCount&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  ConnectionCount& operator=(ConnectionCount&&) = delete;
  ~ConnectionCount() {
    if (count_ != nullptr) --*count_;
  }
  std::atomic<int>* count_;
};

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Site site)
      : options_(options),
        site_(std::move(site)),
        bodies_(options.limits.max_body_bytes * static_cast<uint64_t>(options.limits.max_bodies)),
        acceptor_(io_),
        workers_(static_cast<size_t>(options.worker_threads)),
        large_worker_(1) {}

  ~Impl() { stop(); }

  absl::Status listen() {
    if (!options_.certificate_file.empty()) {
      tls_.emplace(asio::ssl::context::tls_server);
      if (absl::Status status = load_certificate(options_, *tls_); !status.ok()) return status;
    }
    error_code error;
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port),
                                        asio::ip::resolver_base::passive, error);
    if (error || found.empty()) {
      return absl::InvalidArgumentError(fmt::format("--host {}: {}", options_.host, error.message()));
    }
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) {
      return absl::UnavailableError(fmt::format("cannot listen on {} port {}: {}", options_.host, options_.port,
                                                error.message()));
    }
    port_ = acceptor_.local_endpoint().port();
    return absl::OkStatus();
  }

  void run() {
    asio::co_spawn(io_, accept(), asio::detached);
    for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { io_.run(); });
  }

  void stop() {
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    workers_.stop();
    large_worker_.stop();
    workers_.join();
    large_worker_.join();
  }

  uint16_t port() const { return port_; }
  int active_requests() const { return active_requests_; }
  void close_after_replies() { closing_ = true; }

 private:
  asio::awaitable<void> accept() {
    while (true) {
      asio::ip::tcp::socket socket(asio::make_strand(io_));
      auto [error] = co_await acceptor_.async_accept(socket, kAwait);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // out of file descriptors, most likely
        asio::steady_timer pause(io_, std::chrono::milliseconds(50));
        co_await pause.async_wait(kAwait);
        continue;
      }
      ++connections_;
      ConnectionCount count(connections_);
      error_code ignored;
      socket.set_option(asio::ip::tcp::no_delay(true), ignored);
      const auto remote = socket.remote_endpoint(ignored);
      std::string peer = ignored ? std::string("-") : remote.address().to_string();
      const auto executor = socket.get_executor();
      if (connections_ > options_.limits.max_connections) {
        asio::co_spawn(executor, turn_away(std::move(socket), std::move(count)), asio::detached);
      } else {
        asio::co_spawn(executor, serve(std::move(socket), std::move(peer), std::move(count)), asio::detached);
      }
    }
  }

  asio::awaitable<void> serve(asio::ip::tcp::socket socket, std::string peer, ConnectionCount) {
    std::unique_ptr<Connection> connection =
        tls_ ? make_tls_connection(std::move(socket), *tls_) : make_tcp_connection(std::move(socket));
    const SessionContext context{site_,   options_.limits,  workers_, large_worker_,
                                 bodies_, active_requests_, closing_};
    co_await run_session(std::move(connection), std::move(peer), context);
  }

  asio::awaitable<void> turn_away(asio::ip::tcp::socket socket, ConnectionCount) {
    if (tls_) co_return;
    std::unique_ptr<Connection> connection = make_tcp_connection(std::move(socket));
    const Reply reply = transport_error(503, "too_many_connections", "too many connections are open");
    const std::string text =
        head_text(reply.status, reply.headers, BodyFraming::kLength, reply.body.size(), false, false) + reply.body;
    connection->expire_after(std::chrono::seconds(2));
    const error_code error = co_await connection->write_all(asio::buffer(text));
    if (!error) co_await connection->shutdown();
  }

  ServerOptions options_;
  Site site_;
  std::atomic<int> active_requests_{0};
  std::atomic<int> connections_{0};
  std::atomic<bool> closing_{false};
  BodyBudget bodies_;
  uint16_t port_ = 0;
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_;
  asio::thread_pool workers_;  // destroyed before io_: sessions that wait for a worker go with it
  asio::thread_pool large_worker_;
  std::vector<std::thread> threads_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Site site) {
  auto impl = std::make_unique<Impl>(options, std::move(site));
  if (absl::Status status = impl->listen(); !status.ok()) return status;
  impl->run();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->port(); }
int Server::active_requests() const { return impl_->active_requests(); }
void Server::close_after_replies() { impl_->close_after_replies(); }
void Server::stop() { impl_->stop(); }

}  // namespace assay::http
