// Records with known times to the figures of a level, by hand.
#include "server/sweep/summary.h"

#include <gtest/gtest.h>

namespace assay::sweep {
namespace {

RequestRecord completed(double start_s, std::vector<double> times_s, int64_t tokens, int64_t prompt_tokens = 10) {
  RequestRecord r;
  r.outcome = Outcome::kCompleted;
  r.kind = "completed";
  r.scheduled_s = r.sent_s = start_s;
  r.last_choice_s = r.end_s = times_s.back();
  r.text_times_s = std::move(times_s);
  r.usage_output_tokens = tokens;
  r.usage_prompt_tokens = prompt_tokens;
  return r;
}

RequestRecord failed(double start_s, double end_s, Outcome outcome, const std::string& kind) {
  RequestRecord r;
  r.outcome = outcome;
  r.kind = kind;
  r.detail = "why " + kind;
  r.scheduled_s = r.sent_s = start_s;
  r.end_s = end_s;
  return r;
}

TEST(Summary, LatenciesOfTwoRequests) {
  // First: tokens at 0.5, 0.75, 1.0 -> TTFT 500, E2EL 1000, TPOT 250. Second: 4 tokens in 3 chunks.
  const LevelSummary s = summarize({completed(0, {0.5, 0.75, 1.0}, 3), completed(1, {1.25, 1.5, 2.5}, 6)}, {}, false);
  EXPECT_EQ(s.completed, 2);
  EXPECT_DOUBLE_EQ(s.ttft_ms.mean, 375.0);
  EXPECT_DOUBLE_EQ(s.ttft_ms.median, 375.0);
  EXPECT_DOUBLE_EQ(s.e2el_ms.mean, 1250.0);
  EXPECT_DOUBLE_EQ(s.tpot_ms.min, 250.0);
  EXPECT_DOUBLE_EQ(s.tpot_ms.max, 250.0);  // (1500 - 250) / 5
  EXPECT_EQ(s.itl_ms.count, 4);            // 250, 250, 250, 1000
  EXPECT_DOUBLE_EQ(s.itl_ms.mean, 437.5);
  EXPECT_DOUBLE_EQ(s.itl_ms.median, 250.0);
  EXPECT_DOUBLE_EQ(s.itl_ms.p90, 775.0);
  EXPECT_EQ(s.output_tokens, 9);
  EXPECT_EQ(s.input_tokens, 20);
  EXPECT_EQ(s.chunks, 6);
  EXPECT_DOUBLE_EQ(s.duration_s, 2.5);
  EXPECT_DOUBLE_EQ(s.achieved_requests_per_s, 0.8);
  EXPECT_DOUBLE_EQ(s.whole_output_tokens_per_s, 3.6);
  EXPECT_FALSE(s.offered_requests_per_s.has_value());
  EXPECT_FALSE(s.goodput_requests_per_s.has_value());
}

TEST(Summary, OneTokenHasNoTimePerOutputToken) {
  const LevelSummary s = summarize({completed(0, {0.5}, 1)}, {}, false);
  EXPECT_EQ(s.tpot_ms.count, 0);
  EXPECT_EQ(s.ttft_ms.count, 1);
  EXPECT_EQ(s.itl_ms.count, 0);
}

TEST(Summary, SteadyWindowIsWhenAllSlotsAreBusy) {
  // Two slots: [0, 4] [4, 6] and [1, 5]; both busy from 1 to 5.
  const std::vector<RequestRecord> records = {completed(0, {2, 4}, 2), completed(1, {3, 5}, 2),
                                              completed(4, {5.5, 6}, 2)};
  const LevelSummary s = summarize(records, {}, false);
  EXPECT_EQ(s.window.in_flight, 2);
  EXPECT_DOUBLE_EQ(s.window.begin_s, 1.0);
  EXPECT_DOUBLE_EQ(s.window.end_s, 5.0);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_s, 1.0);  // tokens at 2, 3, 4, 5 in four seconds
  EXPECT_DOUBLE_EQ(s.input_tokens_per_s, 5.0);   // first tokens at 2 and 3: 20 prompt tokens
  EXPECT_DOUBLE_EQ(s.whole_output_tokens_per_s, 1.0);
}

TEST(Summary, ChunksOfSeveralTokensShareThem) {
  const LevelSummary s = summarize({completed(0, {1, 2}, 8)}, {}, false);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_s, 4.0);
}

TEST(Summary, RateModeWindowEndsWithTheLastArrivalAndOffersArrivals) {
  const std::vector<RequestRecord> records = {completed(0, {1}, 1), completed(1, {2}, 1), completed(2, {3}, 1),
                                              completed(4, {9}, 1)};
  const LevelSummary s = summarize(records, {}, true);
  EXPECT_DOUBLE_EQ(s.window.begin_s, 1.0);
  EXPECT_DOUBLE_EQ(s.window.end_s, 4.0);
  EXPECT_DOUBLE_EQ(*s.offered_requests_per_s, 0.75);  // 3 gaps in 4 s
  EXPECT_DOUBLE_EQ(s.achieved_requests_per_s, 4.0 / 9.0);
  EXPECT_DOUBLE_EQ(s.output_tokens_per_s, 1.0);  // tokens at 1, 2, 3
}

TEST(Summary, LatencyCountsFromTheScheduleNotFromSending) {
  RequestRecord late = completed(1.0, {3.0, 3.5}, 2);
  late.sent_s = 2.5;  // the cap or a busy client held it for 1.5 s
  const LevelSummary s = summarize({late}, {}, true);
  EXPECT_DOUBLE_EQ(s.ttft_ms.mean, 2000.0);
  EXPECT_DOUBLE_EQ(s.e2el_ms.mean, 2500.0);
  EXPECT_DOUBLE_EQ(s.send_delay_ms.mean, 1500.0);
}

TEST(Summary, GoodputWantsEveryLimitKept) {
  const std::vector<RequestRecord> records = {completed(0, {0.4, 0.44}, 2),       // TTFT 400, TPOT 40: good
                                              completed(0, {0.6, 0.64}, 2),       // TTFT 600
                                              completed(0, {0.4, 0.46}, 2),       // TPOT 60
                                              completed(0, {0.5, 0.55, 0.6}, 3),  // at the limits: good
                                              failed(0, 2.0, Outcome::kFailed, "closed_early")};
  const LevelSummary s = summarize(records, {500.0, 50.0, std::nullopt}, false);
  EXPECT_EQ(s.good, 2);
  EXPECT_DOUBLE_EQ(*s.goodput_requests_per_s, 1.0);
}

TEST(Summary, EveryRequestIsCountedOnceByKind) {
  const std::vector<RequestRecord> records = {completed(0, {1.0}, 1),
                                              failed(0, 1, Outcome::kRejected, "http_429"),
                                              failed(0, 1, Outcome::kRejected, "http_503"),
                                              failed(0, 1, Outcome::kTimedOut, "timeout"),
                                              failed(0, 1, Outcome::kFailed, "http_401"),
                                              failed(0, 1, Outcome::kFailed, "http_401")};
  const LevelSummary s = summarize(records, {}, false);
  EXPECT_EQ(s.sent, 6);
  EXPECT_EQ(s.completed, 1);
  EXPECT_EQ(s.rejected, 2);
  EXPECT_EQ(s.timed_out, 1);
  EXPECT_EQ(s.failed, 2);
  EXPECT_EQ(s.kinds.at("http_401"), 2);
  EXPECT_EQ(s.kind_examples.at("http_401"), "why http_401");
  EXPECT_EQ(s.kinds.size(), 5u);
  EXPECT_EQ(s.ttft_ms.count, 1);  // only completed requests have latencies
}

TEST(Summary, NothingSentAndNothingCompleted) {
  EXPECT_EQ(summarize({}, {}, false).sent, 0);
  const LevelSummary s = summarize({failed(1, 1, Outcome::kFailed, "connection_refused")}, {}, false);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.output_tokens_per_s, 0.0);
  EXPECT_EQ(s.achieved_requests_per_s, 0.0);
}

TEST(Summary, AddsUpCertificates) {
  RequestRecord a = completed(0, {1}, 1), b = completed(0, {1}, 1);
  a.certificate = CertificateRecord{true, 0.1, 100, 100};
  b.certificate = CertificateRecord{false, 0.3, 100, 90};
  const CertificateTally tally = summarize({a, b, completed(0, {1}, 1)}, {}, false).certificate;
  EXPECT_EQ(tally.received, 2);
  EXPECT_EQ(tally.certified, 1);
  EXPECT_EQ(tally.metered_cells, 200);
  EXPECT_EQ(tally.certified_cells, 190);
  EXPECT_EQ(tally.worst_tv, 0.3);
}

}  // namespace
}  // namespace assay::sweep
