#include "tests/unit/sweep/stub_server.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <map>
#include <thread>

namespace assay::sweep {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

size_t content_length(const std::string& head) {
  const size_t at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
}

}  // namespace

struct StubServer::Impl {
  explicit Impl(StubScript s) : script(std::move(s)), acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
    acceptor.listen(1024);
    asio::co_spawn(io, accept(), asio::detached);
    thread = std::thread([this] { io.run(); });
  }

  ~Impl() {
    io.stop();
    thread.join();
  }

  asio::awaitable<void> accept() {
    while (true) {
      auto [error, socket] = co_await acceptor.async_accept(kTuple);
      if (error) co_return;
      ++connections;
      asio::co_spawn(io, serve(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> serve(tcp::socket socket) {
    socket.set_option(tcp::no_delay(true));
    std::string buffer;
    while (true) {
      auto [head_error, head_size] =
          co_await asio::async_read_until(socket, asio::dynamic_buffer(buffer), "\r\n\r\n", kTuple);
      if (head_error) co_return;
      StubRequest request;
      const std::string head = buffer.substr(0, head_size);
      buffer.erase(0, head_size);
      request.method = head.substr(0, head.find(' '));
      request.path =
          head.substr(request.method.size() + 1, head.find(' ', request.method.size() + 1) - request.method.size() - 1);
      const size_t wanted = content_length(head);
      if (buffer.size() < wanted) {
        auto [body_error, body_size] = co_await asio::async_read(
            socket, asio::dynamic_buffer(buffer), asio::transfer_exactly(wanted - buffer.size()), kTuple);
        if (body_error) co_return;
      }
      request.body = buffer.substr(0, wanted);
      buffer.erase(0, wanted);
      request.index = counts[request.path]++;
      StubReply reply = script(request);
      const bool keep = co_await answer(socket, std::move(reply));
      if (!keep) co_return;
    }
  }

  asio::awaitable<bool> answer(tcp::socket& socket, StubReply reply) {
    const Clock::time_point start = Clock::now();
    asio::steady_timer timer(io);
    for (const StubStep& step : reply.steps) {
      if (step.at_ms > 0.0) {
        timer.expires_at(
            start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(step.at_ms)));
        co_await timer.async_wait(kTuple);
      }
      auto [error, size] = co_await asio::async_write(socket, asio::buffer(step.bytes), kTuple);
      if (error) co_return false;
    }
    if (reply.after == StubReply::After::kHang) {
      char byte;
      co_await socket.async_read_some(asio::buffer(&byte, 1), kTuple);  // until the client gives up
    }
    if (reply.after == StubReply::After::kReset) {
      socket.set_option(asio::socket_base::linger(true, 0));
      socket.close();  // the destructor would undo the option
    }
    co_return reply.after == StubReply::After::kKeepAlive;
  }

  StubScript script;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  std::map<std::string, int> counts;
  std::atomic<int> connections{0};
  std::thread thread;
};

StubServer::StubServer(StubScript script) : impl_(std::make_unique<Impl>(std::move(script))) {}
StubServer::~StubServer() = default;
int StubServer::port() const {
  return impl_->acceptor.local_endpoint().port();
}
std::string StubServer::url() const {
  return "http://127.0.0.1:" + std::to_string(port());
}
int StubServer::connections() const {
  return impl_->connections;
}

int closed_port() {
  asio::io_context io;
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  return acceptor.local_endpoint().port();
}

std::string http_reply(int status, const std::string& content_type, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: " + content_type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string stream_head(const std::string& content_type) {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + content_type + "\r\nTransfer-Encoding: chunked\r\n\r\n";
}

std::string http_chunk(const std::string& bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

std::string sse(const std::string& data) {
  return "data: " + data + "\n\n";
}

std::string token_event(const std::string& text) {
  return sse(
      R"({"id":"cmpl-0123456789abcdef","object":"text_completion","created":1700000000,"model":"stub","choices":[{"index":0,)"
      R"("text":")" +
      text + R"(","logprobs":null,"finish_reason":null}],"usage":null})");
}

std::string finish_event() {
  return sse(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
}

std::string usage_event(int64_t prompt_tokens, int64_t completion_tokens) {
  return sse(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt_tokens) + R"(,"completion_tokens":)" +
             std::to_string(completion_tokens) + "}}");
}

StubReply token_stream(int tokens, double first_ms, double gap_ms, int64_t prompt_tokens) {
  StubReply reply;
  reply.steps.push_back({0.0, stream_head()});
  for (int i = 0; i < tokens; ++i) reply.steps.push_back({first_ms + gap_ms * i, http_chunk(token_event(" tok"))});
  const std::string end = http_chunk(finish_event()) + http_chunk(usage_event(prompt_tokens, tokens)) +
                          http_chunk(sse("[DONE]")) + http_chunk("");
  reply.steps.push_back({0.0, end});
  return reply;
}

}  // namespace assay::sweep
