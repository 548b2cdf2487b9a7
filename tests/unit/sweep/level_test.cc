// Whole levels against the stub server: known times come out as known figures, every misbehaviour as its kind.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <string>

#include "server/sweep/load_runner.h"
#include "server/sweep/summary.h"
#include "tests/unit/sweep/stub_server.h"

namespace assay::sweep {
namespace {

LoadRequest make_request(uint64_t index) {
  return {"/v1/completions", "{\"prompt\":\"" + std::to_string(index) + "\"}", 10};
}

LevelRun run_against(int port, const LevelPlan& plan, const RequestMaker& make = make_request) {
  boost::asio::io_context io(1);
  RunClock clock;
  HttpClient client(io, {"127.0.0.1", std::to_string(port), "", false}, "", clock);
  return run_level(io, client, clock, make, plan, nullptr);
}

LevelPlan closed_loop(int concurrency, int64_t requests, double timeout_s = 20.0) {
  LevelPlan plan;
  plan.concurrency = concurrency;
  plan.requests = requests;
  plan.timeout_s = timeout_s;
  return plan;
}

int64_t thread_count() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::stoll(line.substr(8));
  }
  return -1;
}

TEST(Level, TokensAtKnownTimesGiveKnownFigures) {
  StubServer stub([](const StubRequest&) { return token_stream(10, 120.0, 40.0); });
  const LevelSummary s = summarize(run_against(stub.port(), closed_loop(4, 12)).records, {400.0, 100.0, {}}, false);
  EXPECT_EQ(s.completed, 12);
  EXPECT_EQ(s.output_tokens, 120);
  EXPECT_EQ(s.input_tokens, 84);
  EXPECT_EQ(s.chunks, 120);
  EXPECT_EQ(s.itl_ms.count, 108);
  EXPECT_EQ(s.missing_usage + s.token_mismatch + s.wrong_length + s.missing_done + s.empty_output, 0);
  EXPECT_EQ(s.window.in_flight, 4);
  EXPECT_EQ(s.good, 12);
  // The stub never sends early; late is the machine's noise.
  EXPECT_GE(s.ttft_ms.min, 120.0);
  EXPECT_LT(s.ttft_ms.median, 150.0);
  EXPECT_NEAR(s.tpot_ms.median, 40.0, 3.0);
  EXPECT_NEAR(s.itl_ms.median, 40.0, 4.0);
  EXPECT_GE(s.e2el_ms.min, 480.0);
  EXPECT_LT(s.e2el_ms.median, 520.0);
  EXPECT_NEAR(s.output_tokens_per_s, 4 * 10 / 0.481, 10.0);
}

// One way to be wrong each; what the sweep must call it.
StubReply misbehave(int way) {
  const std::string start = stream_head() + http_chunk(token_event("a"));
  const std::string tokens =
      stream_head() + http_chunk(token_event("a") + token_event("b")) + http_chunk(finish_event());
  using After = StubReply::After;
  switch (way) {
    case 0:
      return {{{0, start}}, After::kReset};
    case 1:
      return {{{0, start}}, After::kCloseSilently};
    case 2:
      return {{{0, start + http_chunk("data: {\"choices\":[{\n\n")}}, After::kHang};
    case 3:
      return {{{0, start + http_chunk("event stream? no.\n")}}, After::kHang};
    case 4:
      return {{{0, http_reply(200, "application/json", "{\"choices\":[]}")}}};
    case 5:
      return {{{0, start}}, After::kHang};  // over the time limit
    case 6:
      return {{{0, http_reply(401, "application/json", "{\"error\":{\"message\":\"who are you?\"}}")}}};
    case 7:
      return {{{0, http_reply(429, "application/json", "{}")}}};
    case 8:
      return {{{0, http_reply(503, "text/plain", "draining")}}};
    case 9:
      return {{{0, http_reply(500, "text/plain", "oops")}}};
    case 10:
      return {{{0, start + http_chunk(sse("{\"error\":{\"message\":\"out of pages\"}}")) + http_chunk("")}}};
    case 11:
      return {{{0, "not http at all\r\n\r\n"}}, After::kHang};
    case 12:
      return {{{0, start + http_chunk("")}}};  // ends cleanly, but never said why
    case 13:
      return {{{0, "HTTP/1.1 200 OK\r\nContent-"}}, After::kCloseSilently};
    case 14:
      return {{{0, tokens + http_chunk(sse("[DONE]")) + http_chunk("")}}};  // no usage
    case 15:
      return {{{0, tokens + http_chunk(usage_event(3, 2)) + http_chunk("")}}};  // no [DONE]
    default:
      return token_stream(10, 0, 0);
  }
}

TEST(Level, EveryMisbehaviourIsCountedByItsKind) {
  constexpr int kWays = 17, kRounds = 3;
  StubServer stub([](const StubRequest& request) { return misbehave(request.index % kWays); });
  const LevelSummary s = summarize(run_against(stub.port(), closed_loop(4, kWays * kRounds, 1.0)).records, {}, false);
  const std::map<std::string, int64_t> expected = {
      {"closed_early", 2 * kRounds},  {"completed", 3 * kRounds},  {"connection_reset", kRounds},
      {"http_401", kRounds},          {"http_429", kRounds},       {"http_500", kRounds},
      {"http_503", kRounds},          {"malformed_http", kRounds}, {"malformed_sse", 2 * kRounds},
      {"stream_error", kRounds},      {"timeout", kRounds},        {"truncated_stream", kRounds},
      {"wrong_content_type", kRounds}};
  EXPECT_EQ(s.kinds, expected);
  EXPECT_EQ(s.sent, kWays * kRounds);
  EXPECT_EQ(s.completed, 3 * kRounds);
  EXPECT_EQ(s.rejected, 2 * kRounds);
  EXPECT_EQ(s.timed_out, kRounds);
  EXPECT_EQ(s.failed, 11 * kRounds);
  EXPECT_EQ(s.missing_usage, kRounds);
  EXPECT_EQ(s.missing_done, kRounds);
  EXPECT_EQ(s.output_tokens, (2 + 2 + 10) * kRounds);
  EXPECT_EQ(s.kind_examples.at("stream_error"), "out of pages");
}

TEST(Level, RefusedConnectionsAreCounted) {
  const LevelSummary s = summarize(run_against(closed_port(), closed_loop(4, 20)).records, {}, false);
  EXPECT_EQ(s.kinds, (std::map<std::string, int64_t>{{"connection_refused", 20}}));
  EXPECT_EQ(s.failed, 20);
}

TEST(Level, OneConnectionPerSlotIsKeptAndAClosedOneReplaced) {
  StubServer keeping([](const StubRequest&) { return token_stream(10, 0, 0); });
  const LevelSummary kept = summarize(run_against(keeping.port(), closed_loop(3, 60)).records, {}, false);
  EXPECT_EQ(kept.completed, 60);
  EXPECT_EQ(kept.resent, 0);
  EXPECT_EQ(keeping.connections(), 3);
  StubServer closing([](const StubRequest& request) {
    StubReply reply = token_stream(10, 0, 0);
    if (request.index % 3 == 2) reply.after = StubReply::After::kCloseSilently;
    return reply;
  });
  const LevelSummary replaced = summarize(run_against(closing.port(), closed_loop(1, 12)).records, {}, false);
  EXPECT_EQ(replaced.completed, 12);
  EXPECT_EQ(replaced.resent, 3);  // after the third, sixth and ninth
  EXPECT_EQ(closing.connections(), 4);
}

TEST(Level, AServerThatHangsUpWithoutAWordFailsOnce) {
  StubServer stub([](const StubRequest&) { return StubReply{{}, StubReply::After::kCloseSilently}; });
  const LevelSummary s = summarize(run_against(stub.port(), closed_loop(2, 10)).records, {}, false);
  EXPECT_EQ(s.kinds, (std::map<std::string, int64_t>{{"closed_early", 10}}));
  EXPECT_EQ(stub.connections(), 10);
}

TEST(Level, SecondsEndTheLevelAndWhatRunsIsFinished) {
  StubServer stub([](const StubRequest&) { return token_stream(10, 20, 5); });
  LevelPlan plan = closed_loop(2, 0);
  plan.seconds = 0.5;
  const LevelSummary s = summarize(run_against(stub.port(), plan).records, {}, false);
  EXPECT_EQ(s.completed, s.sent);
  EXPECT_GE(s.completed, 4);
  EXPECT_LE(s.completed, 2 * 8);
  EXPECT_GE(s.duration_s, 0.5);
}

// Answers take 200 ms and only one may run: request i ends at 200 (i + 1), due at 50 i. A client that measured from
// sending would report 200 ms for all of them.
TEST(Level, WaitingForTheCapCountsAsLatency) {
  StubServer stub([](const StubRequest&) { return token_stream(10, 200, 0); });
  LevelPlan plan;
  plan.concurrency = 1;
  plan.arrivals_s = {0.0, 0.05, 0.1, 0.15, 0.2, 0.25};
  const LevelRun capped = run_against(stub.port(), plan);
  ASSERT_EQ(capped.records.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const RequestRecord& r = capped.records[i];
    EXPECT_DOUBLE_EQ(r.scheduled_s, 0.05 * static_cast<double>(i));
    const double expected_s = 0.2 * static_cast<double>(i + 1) - r.scheduled_s;
    EXPECT_GE(r.last_choice_s - r.scheduled_s, expected_s - 1e-3);
    EXPECT_LT(r.last_choice_s - r.scheduled_s, expected_s + 0.15);
  }
  plan.concurrency = 0;
  const LevelSummary open = summarize(run_against(stub.port(), plan).records, {}, true);
  EXPECT_GE(open.e2el_ms.min, 200.0);
  EXPECT_LT(open.e2el_ms.median, 250.0);
  EXPECT_NEAR(*open.offered_requests_per_s, 20.0, 1e-6);
}

TEST(Level, FiveHundredTwelveStreamsShareOneThread) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  int64_t threads = 0;
  StubServer stub([&](const StubRequest& request) {
    if (request.index == 511) threads = thread_count();
    return token_stream(10, 1500, 50);
  });
  const LevelSummary s = summarize(run_against(stub.port(), closed_loop(512, 512, 60.0)).records, {}, false);
  EXPECT_EQ(s.completed, 512);
  EXPECT_EQ(s.output_tokens, 5120);
  EXPECT_EQ(s.window.in_flight, 512);
  EXPECT_EQ(stub.connections(), 512);
  EXPECT_LE(threads, 3);  // this one, the stub's, Asio's for name resolution
}

}  // namespace
}  // namespace assay::sweep
