// The server on a real socket: framing, limits, streams, disconnects.
#include "server/http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/unit/http/raw_client.h"

namespace assay::http {
namespace {

using ::assay::testing::count;
using ::assay::testing::RawClient;
using std::chrono::milliseconds;

// A producer that the test feeds; counts the living.
class TestProducer final : public Producer {
 public:
  struct Shared {
    std::mutex mutex;
    std::function<void()> ready;
    std::string bytes;
    bool end = false;
    bool throws = false;
    int status = 200;
    bool made_apart = false, made_throws = false;
    std::thread::id taker, maker;

    void say(const std::string& text, bool last) {
      const std::lock_guard lock(mutex);
      bytes += text;
      end |= last;
      if (ready) ready();
    }
  };

  TestProducer(std::shared_ptr<Shared> shared, std::atomic<int>& alive) : shared_(std::move(shared)), alive_(alive) { ++alive_; }
  ~TestProducer() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->ready = nullptr;
    --alive_;
  }
  void on_ready(std::function<void()> ready) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->ready = std::move(ready);
    shared_->ready();
  }
  Production take() override {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->throws) throw std::runtime_error("oops");
    Production production;
    production.bytes = std::exchange(shared_->bytes, "");
    production.end = shared_->end;
    production.status = shared_->status;
    if (production.end && shared_->made_apart) {
      production.make = [this, made = production] {
        shared_->maker = std::this_thread::get_id();
        if (shared_->made_throws) throw std::runtime_error("no memory");
        return made;
      };
      production.bytes.clear();
    } else {
      shared_->taker = std::this_thread::get_id();
    }
    return production;
  }
  std::string log_fields() const override { return "tokens=5"; }

 private:
  std::shared_ptr<Shared> shared_;
  std::atomic<int>& alive_;
};

class ServerTest : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}, std::vector<std::string> keys = {}, std::vector<std::string> origins = {}) {
    options.port = 0;
    std::vector<Route> routes(5);
    routes[0] = {"POST", "/echo", false, false, [](const HttpRequest& request) {
                   Reply reply = json_reply(200, request.body);
                   return reply;
                 }};
    routes[1] = {"POST", "/stream", false, false, [this](const HttpRequest&) { return produced(true); }};
    routes[2] = {"POST", "/whole", false, false, [this](const HttpRequest&) { return produced(false); }};
    routes[3] = {"GET", "/open", true, true, [](const HttpRequest&) { return json_reply(200, "{}"); }};
    routes[4] = {"GET", "/throws", false, false, [](const HttpRequest&) -> Reply { throw std::runtime_error("oops"); }};
    auto server = Server::start(options, Site(std::move(routes), keys, origins, [this](const AccessRecord& record) {
                                  const std::lock_guard lock(mutex_);
                                  records_.push_back(record);
                                }));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }

  Reply produced(bool stream) {
    Reply reply;
    reply.event_stream = stream;
    reply.headers = {{"Content-Type", stream ? "text/event-stream" : "application/json"}};
    reply.producer = std::make_unique<TestProducer>(shared_, alive_);
    return reply;
  }

  std::string ask(const std::string& bytes) {
    RawClient client(server_->port());
    client.send(bytes);
    return client.read_to_end(1000);
  }

  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  std::shared_ptr<TestProducer::Shared> shared_ = std::make_shared<TestProducer::Shared>();
  std::atomic<int> alive_{0};
  std::mutex mutex_;
  std::vector<AccessRecord> records_;
  std::unique_ptr<Server> server_;
};

const std::string kCloseHeader = "Connection: close\r\n";
const std::string kClose = kCloseHeader + "\r\n";

std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_F(ServerTest, KeepAliveAndPipelining) {
  start();
  RawClient client(server_->port());
  client.send(post("/echo", "one") + post("/echo", "two") + "GET /open HTTP/1.1\r\nHost: x\r\n" + kClose);
  const std::string all = client.read_to_end();
  EXPECT_EQ(count(all, "HTTP/1.1 200 OK"), 3u);
  EXPECT_LT(all.find("one"), all.find("two"));
  EXPECT_EQ(count(all, "Connection: close"), 1u);
}

TEST_F(ServerTest, BytesOneAtATimeAndChunkedBodies) {
  start();
  RawClient client(server_->port());
  for (const char c : post("/echo", "slow")) client.send(std::string(1, c));
  EXPECT_NE(client.read_until("slow").find("200 OK"), std::string::npos);
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(client.read_until("abcde").find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  start();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("100 Continue"), std::string::npos);
  client.send("body");
  EXPECT_NE(client.read_until("body").find("200 OK"), std::string::npos);
  EXPECT_NE(ask("POST /echo HTTP/1.1\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\nx").find("417"), std::string::npos);
}

TEST_F(ServerTest, Case50LimitsOnBodyAndHeaders) {
  ServerOptions options;
  options.limits.max_body_bytes = 1000;
  options.limits.max_header_bytes = 8192;
  start(options);
  const std::string big = ask(post("/echo", std::string(3'000'000, 'x')));
  EXPECT_NE(big.find("HTTP/1.1 413"), std::string::npos) << big.substr(0, 100);
  EXPECT_NE(big.find("\"code\":\"body_too_large\""), std::string::npos);
  const std::string refused_early =
      ask("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(refused_early.find("100 Continue"), std::string::npos);
  EXPECT_NE(refused_early.find("413"), std::string::npos);
  EXPECT_NE(ask("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFF\r\nabc").find("413"), std::string::npos);
  EXPECT_NE(ask("GET /open HTTP/1.1\r\nX: " + std::string(1'000'000, 'x') + "\r\n\r\n").find("HTTP/1.1 431"), std::string::npos);
  std::string many = "GET /open HTTP/1.1\r\n";
  for (int i = 0; i < 200; ++i) many += "X" + std::to_string(i) + ": y\r\n";
  EXPECT_NE(ask(many + "\r\n").find("HTTP/1.1 431"), std::string::npos);
}

TEST_F(ServerTest, BadHttpGets400) {
  start();
  for (const std::string bytes : {"nonsense\r\n\r\n", "GET /open HTTP/1.1\r\nBad Header: x\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
                                  "POST /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                                  "POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                                  "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                                  "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "GET /%zz HTTP/1.1\r\n\r\n"}) {
    const std::string reply = ask(bytes);
    EXPECT_NE(reply.find("HTTP/1.1 400"), std::string::npos) << bytes << "->" << reply;
    EXPECT_NE(reply.find("\"error\""), std::string::npos);
  }
  EXPECT_NE(ask("GET /open HTTP/9.9\r\n\r\n").find("HTTP/1.1 505"), std::string::npos);
  EXPECT_NE(ask("GET /open HTTP/1.1\r\n" + kClose).find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, Case55UnknownPathsAndMethods) {
  start();
  const std::string missing = ask("GET /nothing HTTP/1.1\r\n" + kClose);
  EXPECT_NE(missing.find("HTTP/1.1 404"), std::string::npos);
  EXPECT_NE(missing.find("{\"error\":{\"message\""), std::string::npos);
  const std::string method = ask("GET /echo HTTP/1.1\r\n" + kClose);
  EXPECT_NE(method.find("HTTP/1.1 405"), std::string::npos);
  EXPECT_NE(method.find("Allow: POST"), std::string::npos);
  EXPECT_NE(method.find("\"code\":\"method_not_allowed\""), std::string::npos);
}

TEST_F(ServerTest, HeadAndOptions) {
  start({}, {}, {"https://ui.example"});
  const std::string head = ask("HEAD /open HTTP/1.1\r\n" + kClose);
  EXPECT_NE(head.find("Content-Length: 2"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  const std::string preflight = ask("OPTIONS /echo HTTP/1.1\r\nOrigin: https://ui.example\r\nAccess-Control-Request-Headers: "
                                    "authorization, x-stainless-lang\r\n" + kClose);
  EXPECT_NE(preflight.find("HTTP/1.1 204"), std::string::npos);
  EXPECT_NE(preflight.find("Access-Control-Allow-Origin: https://ui.example"), std::string::npos);
  EXPECT_NE(preflight.find("Access-Control-Allow-Headers: authorization, x-stainless-lang"), std::string::npos);
  EXPECT_EQ(ask("GET /open HTTP/1.1\r\nOrigin: https://evil.example\r\n" + kClose).find("Access-Control"), std::string::npos);
}

TEST_F(ServerTest, Http10WithAndWithoutKeepAlive) {
  start();
  EXPECT_NE(ask("GET /open HTTP/1.0\r\n\r\n").find("Connection: close"), std::string::npos);
  RawClient client(server_->port());
  client.send("GET /open HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(client.read_until("{}").find("Connection: keep-alive"), std::string::npos);
  client.send("POST /stream HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
  shared_->say("data: x\n\n", true);
  const std::string stream = client.read_to_end();
  EXPECT_EQ(stream.find("chunked"), std::string::npos);
  EXPECT_TRUE(stream.ends_with("data: x\n\n"));
}

TEST_F(ServerTest, RequestIdsGoInAndOut) {
  start();
  EXPECT_NE(ask("GET /open HTTP/1.1\r\nX-Request-ID: abc\r\n" + kClose).find("X-Request-Id: abc\r\n"), std::string::npos);
  EXPECT_NE(ask("GET /open HTTP/1.1\r\n" + kClose).find("X-Request-Id: "), std::string::npos);
}

TEST_F(ServerTest, Case73KeysCoverEverythingButOpenRoutes) {
  start({}, {"sk-one"});
  EXPECT_NE(ask("GET /open HTTP/1.1\r\n" + kClose).find("200 OK"), std::string::npos);
  for (const char* path : {"/echo", "/nothing"}) {
    const std::string reply = ask(std::string("POST ") + path + " HTTP/1.1\r\nContent-Length: 0\r\n" + kClose);
    EXPECT_NE(reply.find("HTTP/1.1 401"), std::string::npos) << path;
    EXPECT_NE(reply.find("\"code\":\"invalid_api_key\""), std::string::npos);
  }
  EXPECT_NE(ask("POST /echo HTTP/1.1\r\nAuthorization: bearer sk-one\r\nContent-Length: 0\r\n" + kClose).find("200 OK"),
            std::string::npos);
}

// Nobody without a key, a route or the right method gets to fill memory.
TEST_F(ServerTest, RefusedByTheHeadBeforeTheBodyIsRead) {
  start({}, {"sk-one"});
  const std::string key = "Authorization: Bearer sk-one\r\n", expect = "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
  for (const std::string& end : {expect, std::string("Content-Length: 1000000\r\n\r\n"),
                                std::string("Transfer-Encoding: chunked\r\n\r\n")}) {
    for (const auto& [head, status] : {std::pair<std::string, std::string>{"POST /echo HTTP/1.1\r\n", "401"},
                                       {"POST /nothing HTTP/1.1\r\n" + key, "404"},
                                       {"DELETE /echo HTTP/1.1\r\n" + key, "405"}}) {
      const std::string reply = ask(head + end);  // no body is sent
      EXPECT_EQ(reply.find("HTTP/1.1 " + status), 0u) << head << end << reply;
      EXPECT_NE(reply.find("Connection: close"), std::string::npos);
    }
  }
  EXPECT_EQ(ask("POST /echo HTTP/1.1\r\n" + key + expect).find("HTTP/1.1 100"), 0u);
}

TEST_F(ServerTest, BodiesTogetherAreBounded) {
  ServerOptions options;
  options.limits.max_body_bytes = 100'000;
  options.limits.max_bodies = 2;
  start(options);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
  std::vector<RawClient> slow;  // announced alone, a body costs nothing
  for (int i = 0; i < 5; ++i) {
    slow.emplace_back(server_->port());
    slow.back().send(head);
  }
  EXPECT_NE(ask(post("/echo", std::string(90'000, 'x'), kCloseHeader)).find("200 OK"), std::string::npos);
  for (int i = 0; i < 2; ++i) slow[i].send(std::string(90'000, 'y'));
  std::string full;
  ASSERT_TRUE(eventually([&] {
    full = ask(post("/echo", std::string(90'000, 'x'), kCloseHeader));
    return full.find("HTTP/1.1 503") == 0;
  }));
  EXPECT_NE(full.find("Retry-After: "), std::string::npos);
  EXPECT_NE(full.find("\"code\":\"too_many_bodies\""), std::string::npos);
  slow[0].send(std::string(10'000, 'y'));
  EXPECT_NE(slow[0].read_until("yyy").find("200 OK"), std::string::npos);
  slow.clear();  // who leaves gives back as well
  EXPECT_TRUE(eventually([&] {
    return ask(post("/echo", std::string(90'000, 'x'), kCloseHeader)).find("200 OK") != std::string::npos;
  }));
}

TEST_F(ServerTest, WholeRepliesAreMadeByWorkers) {
  start();
  shared_->made_apart = true;
  RawClient client(server_->port());
  client.send(post("/whole", ""));
  ASSERT_TRUE(eventually([&] { return alive_ == 1; }));
  shared_->say("{\"a\":1}", true);
  EXPECT_NE(client.read_until("{\"a\":1}").find("Content-Length: 7"), std::string::npos);
  EXPECT_NE(shared_->maker, std::thread::id());
  EXPECT_NE(shared_->maker, shared_->taker);
  shared_->made_throws = true;
  client.send(post("/whole", ""));
  EXPECT_EQ(client.read_until("no memory").find("HTTP/1.1 500"), 0u);
}

TEST_F(ServerTest, PartsOfStreamsAreMadeByWorkersWhereTheyTakeTime) {
  start();
  shared_->made_apart = true;
  RawClient client(server_->port());
  client.send(post("/stream", ""));
  ASSERT_TRUE(eventually([&] { return alive_ == 1; }));
  shared_->say("data: long\n\n", true);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("data: long"), std::string::npos);
  EXPECT_NE(shared_->maker, std::thread::id());
  EXPECT_NE(shared_->maker, shared_->taker);
  shared_->made_throws = true;
  client.send(post("/stream", ""));
  const std::string failed = client.read_until("0\r\n\r\n");
  EXPECT_NE(failed.find("data: {\"error\""), std::string::npos) << failed;
}

TEST_F(ServerTest, AProducersExceptionEndsItsReply) {
  shared_->throws = true;
  start();
  RawClient client(server_->port());
  client.send(post("/whole", ""));
  const std::string whole = client.read_until("internal_error");
  EXPECT_EQ(whole.find("HTTP/1.1 500"), 0u) << whole;
  client.send(post("/stream", ""));
  const std::string stream = client.read_until("0\r\n\r\n");
  EXPECT_NE(stream.find("data: {\"error\""), std::string::npos) << stream;
  EXPECT_NE(stream.find("0\r\n\r\n"), std::string::npos) << stream;
  client.send("GET /open HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.read_until("{}").find("200 OK"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return alive_ == 0; }));
}

TEST_F(ServerTest, Http10StreamsEndWithTheirConnectionEvenInAnError) {
  start();
  shared_->status = 500;
  shared_->bytes = "data: {\"error\":{}}\n\n";
  shared_->end = true;
  RawClient client(server_->port());
  client.send("POST /stream HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(client.read_to_end().find("data: {\"error\""), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));  // closed, not silent until the time-out
}

TEST_F(ServerTest, AHandlersExceptionCostsItsRequestOnly) {
  start();
  EXPECT_NE(ask("GET /throws HTTP/1.1\r\n" + kClose).find("HTTP/1.1 500"), std::string::npos);
  EXPECT_NE(ask("GET /open HTTP/1.1\r\n" + kClose).find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, Case43SilentStreamsGetComments) {
  ServerOptions options;
  options.limits.keep_alive_comment = milliseconds(30);
  start(options);
  RawClient client(server_->port());
  client.send(post("/stream", ""));
  std::string text = client.read_until(": keep-alive\n\n");
  EXPECT_NE(text.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(text.find(": keep-alive"), std::string::npos);
  shared_->say("data: hello\n\n", false);
  EXPECT_NE(client.read_until("hello").find("data: hello\n\n"), std::string::npos);
  shared_->say("data: [DONE]\n\n", true);
  EXPECT_NE(client.read_until("0\r\n\r\n").find("[DONE]"), std::string::npos);
  client.send(post("/echo", "again"));  // the connection lives on
  EXPECT_NE(client.read_until("again").find("200 OK"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return alive_ == 0; }));
}

TEST_F(ServerTest, WholeRepliesWaitForTheirProducer) {
  start();
  RawClient client(server_->port());
  client.send(post("/whole", "") + post("/echo", "next"));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(300));
    shared_->say("{\"a\":1}", true);
  });
  const std::string all = client.read_until("next");
  later.join();
  EXPECT_NE(all.find("Content-Length: 7"), std::string::npos);
  EXPECT_LT(all.find("{\"a\":1}"), all.find("next"));
}

TEST_F(ServerTest, Case69ALostClientCancelsStreamsAndWholeReplies) {
  start();
  for (const char* path : {"/stream", "/whole"}) {
    RawClient client(server_->port());
    client.send(post(path, ""));
    ASSERT_TRUE(eventually([&] { return alive_ == 1; })) << path;
    client.close();
    EXPECT_TRUE(eventually([&] { return alive_ == 0; })) << path;
    EXPECT_TRUE(eventually([&] { return server_->active_requests() == 0; }));
  }
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(records_.size(), 2u);
  EXPECT_EQ(records_[0].status, 499);
  EXPECT_EQ(records_[1].status, 499);
  EXPECT_EQ(records_[1].fields, "tokens=5");
}

TEST_F(ServerTest, ALostClientWithAPipelinedRequestIsNoticed) {
  start();
  RawClient client(server_->port());
  client.send(post("/stream", "") + post("/echo", "x"));
  ASSERT_TRUE(eventually([&] { return alive_ == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return alive_ == 0; }));
}

TEST_F(ServerTest, IdleStreamsCostNoThreads) {
  start();
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto before = threads();
  std::vector<RawClient> clients;
  constexpr int kStreams = 400;  // within a common limit of 1,024 descriptors; more in tests/e2e
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back(server_->port());
    ASSERT_TRUE(clients.back().send(post("/stream", "")));
  }
  EXPECT_TRUE(eventually([&] { return alive_ == kStreams; }));
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(server_->active_requests(), kStreams);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return alive_ == 0; }));
}

TEST_F(ServerTest, ConnectionsAboveTheLimitAreTurnedAway) {
  ServerOptions options;
  options.limits.max_connections = 2;
  start(options);
  RawClient one(server_->port()), two(server_->port());
  one.send("GET /open HTTP/1.1\r\n\r\n");
  one.read_until("{}");
  two.send("GET /open HTTP/1.1\r\n\r\n");
  two.read_until("{}");
  RawClient three(server_->port());
  const std::string reply = three.read_to_end(1000);
  EXPECT_NE(reply.find("HTTP/1.1 503"), std::string::npos);
  EXPECT_NE(reply.find("too_many_connections"), std::string::npos);
  two.close();
  EXPECT_TRUE(eventually([&] { return ask("GET /open HTTP/1.1\r\n" + kClose).find("200 OK") != std::string::npos; }));
}

TEST_F(ServerTest, SlowRequestsAreToldAndIdleConnectionsAreClosed) {
  ServerOptions options;
  options.limits.idle_timeout = milliseconds(100);
  options.limits.header_timeout = milliseconds(100);
  options.limits.body_timeout = milliseconds(150);
  start(options);
  RawClient idle(server_->port()), head(server_->port()), body(server_->port()), chunk(server_->port());
  head.send("GET /open HT");
  body.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  chunk.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab");
  EXPECT_EQ(idle.read_to_end(3000), "");
  for (auto& [client, part] : {std::pair<RawClient&, const char*>{head, "headers took longer than 0.1 s"},
                               {body, "body took longer than 0.15 s"}, {chunk, "body took longer than 0.15 s"}}) {
    const std::string reply = client.read_to_end(3000);
    EXPECT_EQ(reply.find("HTTP/1.1 408 Request Timeout"), 0u) << reply;
    EXPECT_NE(reply.find("\"type\":\"timeout_error\",\"param\":null,\"code\":\"request_timeout\""), std::string::npos) << reply;
    EXPECT_NE(reply.find("Connection: close"), std::string::npos) << reply;
    EXPECT_NE(reply.find(part), std::string::npos) << reply;
  }
  // Bytes that keep coming do not extend the time.
  RawClient drip(server_->port());
  drip.send("GET /open HTTP/1.1\r\n");
  std::string reply;
  for (int i = 0; i < 50 && reply.empty(); ++i) {
    drip.send("X: y\r\n");
    reply = drip.read_until("408", 20);
  }
  EXPECT_EQ(reply.find("HTTP/1.1 408"), 0u) << reply;
}

// The parser asserts that there is more to come; whether there is, is up to the client.
TEST_F(ServerTest, TrailersInPiecesCostOnlyTheirRequest) {
  start();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string reply;
  for (const char byte : std::string("0\r\n\ra\n0\r\n\r\n")) {
    if (!client.send(std::string(1, byte))) break;
    reply += client.read_until("400", 10);
  }
  EXPECT_NE(ask("GET /open HTTP/1.1\r\n" + kClose).find("200 OK"), std::string::npos);
  EXPECT_EQ(reply.find("HTTP/1.1 400"), 0u) << reply;
}

TEST_F(ServerTest, StopEndsStreams) {
  start();
  RawClient client(server_->port());
  client.send(post("/stream", ""));
  ASSERT_TRUE(eventually([&] { return alive_ == 1; }));
  server_->stop();
  server_.reset();
  EXPECT_EQ(alive_, 0);
}

TEST_F(ServerTest, DrainingClosesAfterTheReply) {
  start();
  RawClient client(server_->port());
  client.send("GET /open HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_until("{}").find("Connection: close"), std::string::npos);
  server_->close_after_replies();
  client.send("GET /open HTTP/1.1\r\n\r\n");
  EXPECT_NE(client.read_to_end().find("Connection: close"), std::string::npos);
}

TEST(Server, PortsInUseAndBadCertificatesAreSaid) {
  const auto site = [] { return Site({}, {}, {}, [](const AccessRecord&) {}); };
  ServerOptions options;
  options.port = 0;
  auto first = Server::start(options, site());
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  EXPECT_NE(std::string(Server::start(options, site()).status().message()).find("cannot listen"), std::string::npos);
  options.port = 0;
  options.certificate_file = options.key_file = "/no/such/file";
  EXPECT_NE(std::string(Server::start(options, site()).status().message()).find("--ssl-certfile"), std::string::npos);
}

}  // namespace
}  // namespace assay::http
