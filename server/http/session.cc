#include "server/http/session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <exception>

#include "server/http/error_reply.h"
#include "server/http/head_text.h"

namespace assay::http {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kLargeBody = 128 * 1024;  // handled apart from small requests
constexpr int kClientClosed = 499;         // for logs only: the client left before its reply was complete

// Wakes the session from any thread.
class Wake {
 public:
  explicit Wake(const asio::any_io_executor& executor) : timer_(executor) {}

  static std::function<void()> callback(const std::shared_ptr<Wake>& wake) {
    return [wake] {
      asio::post(wake->timer_.get_executor(), [wake] {
        wake->signalled_ = true;
        wake->timer_.cancel();
      });
    };
  }

  // True: woken. False: `time` has passed.
  asio::awaitable<bool> wait(Clock::duration time) {
    if (!signalled_) {
      timer_.expires_after(time);
      co_await timer_.async_wait(kAwait);
    }
    co_return std::exchange(signalled_, false);
  }

 private:
  asio::steady_timer timer_;
  bool signalled_ = false;
};

// A handler's exception (out of memory, most likely) costs its request only.
Reply run_handler(const Route& route, const HttpRequest& request) {
  try {
    return route.handler(request);
  } catch (const std::exception& error) {
    return error_reply(absl::InternalError(std::string("internal error: ") + error.what()));
  }
}

// So does a producer's. Thrown past here it would be seen only once the client leaves.
Production run_producer(const std::function<Production()>& function, bool event_stream) {
  try {
    return function();
  } catch (const std::exception& error) {
    Reply reply = error_reply(absl::InternalError(std::string("internal error: ") + error.what()));
    Production production;
    production.end = true;
    production.status = reply.status;
    production.headers = std::move(reply.headers);
    production.bytes = event_stream ? "data: " + reply.body + "\n\n" : std::move(reply.body);
    return production;
  }
}

class Session {
 public:
  Session(std::unique_ptr<Connection> connection, std::string peer, SessionContext context)
      : connection_(std::move(connection)),
        peer_(std::move(peer)),
        context_(context),
        reader_(*connection_, context_.limits, context_.bodies, [this](const HttpRequest& request) { return refusal(request); }) {}

  asio::awaitable<void> run() {
    connection_->expire_after(std::chrono::seconds(10));
    const error_code handshake_error = co_await connection_->handshake();
    if (handshake_error) co_return;
    bool keep = true;
    while (keep) {
      auto outcome = co_await reader_.next();
      if (std::holds_alternative<ConnectionEnded>(outcome)) break;
      if (auto* bad = std::get_if<BadRequest>(&outcome)) {
        co_await refuse(std::move(*bad));
        co_return;
      }
      keep = co_await serve(std::get<HttpRequest>(std::move(outcome)));
    }
    if (!broken_) co_await connection_->shutdown();
  }

 private:
  struct ActiveCount {
    explicit ActiveCount(std::atomic<int>& count) : count_(count) { ++count_; }
    ~ActiveCount() { --count_; }
    std::atomic<int>& count_;
  };

  // What can be said without the body: no key, no such route or method, a preflight.
  std::optional<Reply> refusal(const HttpRequest& request) const {
    auto found = context_.site.find(request);
    auto* reply = std::get_if<Reply>(&found);
    return reply == nullptr ? std::nullopt : std::optional<Reply>(std::move(*reply));
  }

  asio::awaitable<void> refuse(BadRequest bad) {
    AccessRecord record = begin_record(bad.request.method.empty() ? "-" : bad.request.method, "none", bad.request.request_id);
    record.status = bad.reply.status;
    record.message = bad.reply.log_message;
    co_await write_whole(bad.request, std::move(bad.reply), false, record);
    context_.site.record(record);
    if (broken_) co_return;
    co_await connection_->shutdown();
    co_await reader_.discard_rest();
  }

  AccessRecord begin_record(const std::string& method, const std::string& route, const std::string& request_id) const {
    AccessRecord record;
    record.method = method;
    record.route = route;
    record.request_id = request_id;
    record.peer = peer_;
    return record;
  }

  // True: the connection may take another request.
  asio::awaitable<bool> serve(HttpRequest request) {
    const ActiveCount count(context_.active_requests);
    const auto start = Clock::now();
    AccessRecord record = begin_record(request.method, "none", request.request_id);
    auto found = context_.site.find(request);
    Reply reply;
    if (auto* ready = std::get_if<Reply>(&found)) {
      reply = std::move(*ready);
    } else {
      const Route& route = *std::get<const Route*>(found);
      record.route = route.path;
      reply = co_await dispatch(route, request);
    }
    request.body = std::string();  // not needed any more; streams live long
    reader_.release_body();
    const bool keep = request.keep_alive && !context_.closing;
    record.status = reply.status;
    record.message = reply.log_message;
    const bool ends_connection = reply.producer && reply.event_stream && request.http_1_0;  // that is how its end is seen
    if (!reply.producer) {
      co_await write_whole(request, std::move(reply), keep, record);
    } else if (reply.event_stream) {
      co_await write_stream(request, std::move(reply), keep, record);
    } else {
      co_await write_produced(request, std::move(reply), keep, record);
    }
    record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    context_.site.record(record);
    co_return keep && !broken_ && !ends_connection;
  }

  asio::awaitable<Reply> dispatch(const Route& route, const HttpRequest& request) {
    if (route.quick) co_return run_handler(route, request);
    asio::thread_pool& pool = request.body.size() > kLargeBody ? context_.large_worker : context_.workers;
    co_return co_await asio::co_spawn(
        pool.get_executor(),
        [&route, &request]() -> asio::awaitable<Reply> { co_return run_handler(route, request); }, asio::use_awaitable);
  }

  asio::awaitable<Production> make_on_worker(std::function<Production()> make, bool event_stream) {
    co_return co_await asio::co_spawn(
        context_.workers.get_executor(),
        [&make, event_stream]() -> asio::awaitable<Production> { co_return run_producer(make, event_stream); },
        asio::use_awaitable);
  }

  asio::awaitable<void> write(const std::string& bytes, AccessRecord& record) {
    connection_->expire_after(context_.limits.write_timeout);
    const error_code error = co_await connection_->write_all(asio::buffer(bytes));
    if (error) {
      broken_ = true;
      record.status = kClientClosed;
    }
    record.reply_bytes += bytes.size();
  }

  asio::awaitable<void> write_whole(const HttpRequest& request, Reply reply, bool keep, AccessRecord& record) {
    context_.site.add_common_headers(request, reply.headers);
    std::string text = head_text(reply.status, reply.headers, BodyFraming::kLength, reply.body.size(), keep, request.http_1_0);
    if (request.method != "HEAD") text += reply.body;
    co_await write(text, record);
  }

  // Waits for the one production, unless the client leaves.
  asio::awaitable<void> write_produced(const HttpRequest& request, Reply reply, bool keep, AccessRecord& record) {
    using namespace asio::experimental::awaitable_operators;
    std::unique_ptr<Producer> producer = std::move(reply.producer);
    auto wake = std::make_shared<Wake>(connection_->executor());
    producer->on_ready(Wake::callback(wake));
    auto outcome = co_await (wait_for_end(*producer, *wake) || connection_->peer_gone());
    record.fields = producer->log_fields();
    if (outcome.index() == 1) {
      record.status = kClientClosed;
      broken_ = true;
      co_return;
    }
    Production production = std::get<0>(std::move(outcome));
    if (production.make) production = co_await make_on_worker(std::move(production.make), false);
    producer.reset();
    reply.status = record.status = production.status;
    for (Header& header : production.headers) reply.headers.push_back(std::move(header));
    reply.body = std::move(production.bytes);
    co_await write_whole(request, std::move(reply), keep, record);
  }

  asio::awaitable<Production> wait_for_end(Producer& producer, Wake& wake) {
    while (true) {
      Production production = run_producer([&] { return producer.take(); }, false);
      if (production.end) co_return production;
      co_await wake.wait(std::chrono::hours(1));
    }
  }

  asio::awaitable<void> write_stream(const HttpRequest& request, Reply reply, bool keep, AccessRecord& record) {
    using namespace asio::experimental::awaitable_operators;
    std::unique_ptr<Producer> producer = std::move(reply.producer);
    auto wake = std::make_shared<Wake>(connection_->executor());
    producer->on_ready(Wake::callback(wake));
    context_.site.add_common_headers(request, reply.headers);
    const BodyFraming framing = request.http_1_0 ? BodyFraming::kUntilClose : BodyFraming::kChunked;
    const std::string head =
        head_text(reply.status, reply.headers, framing, 0, keep && !request.http_1_0, request.http_1_0);
    bool complete = false;  // clients may close as soon as they have the end: that is not leaving early
    auto outcome = co_await (produce(*producer, *wake, head, framing, record, complete) || connection_->peer_gone());
    if (outcome.index() == 1 && !complete) {
      record.status = kClientClosed;
      broken_ = true;
    }
    record.fields = producer->log_fields();
  }

  asio::awaitable<void> produce(Producer& producer, Wake& wake, std::string text, BodyFraming framing, AccessRecord& record,
                                bool& complete) {
    const auto frame = [&](const std::string& bytes) { return framing == BodyFraming::kChunked ? chunk_text(bytes) : bytes; };
    bool woken = true;
    while (!broken_) {
      Production production = run_producer([&] { return producer.take(); }, true);
      if (production.make) production = co_await make_on_worker(std::move(production.make), true);
      if (!production.bytes.empty()) text += frame(production.bytes);
      if (!woken && production.bytes.empty()) text += frame(": keep-alive\n\n");
      if (production.end) {
        record.status = production.status;
        if (framing == BodyFraming::kChunked) text += chunk_text("");
      }
      if (!text.empty()) co_await write(text, record);
      complete = production.end && !broken_;
      if (production.end) co_return;
      text.clear();
      woken = co_await wake.wait(context_.limits.keep_alive_comment);
    }
  }

  std::unique_ptr<Connection> connection_;
  std::string peer_;
  SessionContext context_;
  RequestReader reader_;
  bool broken_ = false;  // a write failed or the client left: nothing more can be said here
};

}  // namespace

asio::awaitable<void> run_session(std::unique_ptr<Connection> connection, std::string peer, SessionContext context) {
  Session session(std::move(connection), std::move(peer), context);
  co_await session.run();
}

}  // namespace assay::http
