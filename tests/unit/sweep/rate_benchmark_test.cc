// How many streamed tokens one core of the client can take: tokens per second of the client's own CPU time, each token
// in a write of its own, so that the figure does not depend on how busy the machine is.
#include <gtest/gtest.h>

#include <cstdio>

#include "server/sweep/load_runner.h"
#include "server/sweep/summary.h"
#include "tests/unit/sweep/stub_server.h"

namespace assay::sweep {
namespace {

TEST(Rate, OneCoreTakesTwentyThousandTokensPerSecond) {
  constexpr int kStreams = 256, kTokens = 250;
  constexpr double kGapMs = 10.0;  // 25,600 tokens/s offered
  StubServer stub([](const StubRequest&) { return token_stream(kTokens, 100.0, kGapMs); });
  boost::asio::io_context io(1);
  RunClock clock;
  HttpClient client(io, {"127.0.0.1", std::to_string(stub.port()), "", false}, "", clock);
  LevelPlan plan;
  plan.concurrency = kStreams;
  plan.requests = kStreams;
  const RequestMaker make = [](uint64_t) { return LoadRequest{"/v1/completions", "{}", kTokens}; };
  const LevelRun run = run_level(io, client, clock, make, plan, nullptr);
  const LevelSummary s = summarize(run.records, {}, false);
  ASSERT_EQ(s.completed, kStreams);
  ASSERT_EQ(s.chunks, int64_t{kStreams} * kTokens);
  const double cpu_s = run.client.cpu_share * s.duration_s;
  const double tokens_per_cpu_s = static_cast<double>(s.chunks) / cpu_s;
  std::printf(
      "tokens %lld, wall %.2f s, client CPU %.2f s: %.0f tokens per CPU second, %.0f tokens/s in the steady window\n",
      static_cast<long long>(s.chunks), s.duration_s, cpu_s, tokens_per_cpu_s, s.output_tokens_per_s);
  EXPECT_GE(tokens_per_cpu_s, 20000.0);
}

}  // namespace
}  // namespace assay::sweep
