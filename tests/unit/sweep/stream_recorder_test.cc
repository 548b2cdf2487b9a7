// What a recorder makes of a response whose bytes and times are known: exact figures, every way to be wrong by its
// name.
#include "server/sweep/stream_recorder.h"

#include <gtest/gtest.h>

#include <random>

#include "server/sweep/summary.h"

namespace assay::sweep {
namespace {

struct Piece {
  double at_s;
  std::string bytes;
};

std::string event(const std::string& data) {
  return "data: " + data + "\n\n";
}
std::string text_chunk(const std::string& text) {
  return event(R"({"choices":[{"index":0,"text":")" + text + R"(","finish_reason":null}],"usage":null})");
}
const std::string kFinish = event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
const std::string kDone = event("[DONE]");
std::string usage(int prompt, int completion) {
  return event(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt) + R"(,"completion_tokens":)" +
               std::to_string(completion) + R"(,"prompt_tokens_details":{"cached_tokens":3}}})");
}

RequestRecord record(const std::vector<Piece>& pieces, TransferError error = TransferError::kNone, int status = 200,
                     const std::string& type = "text/event-stream; charset=utf-8", int64_t wanted = 3) {
  StreamRecorder recorder(1.0, 1.5, wanted);
  double end_s = 2.0;
  bool go_on = status == 0 || recorder.on_header(status, type, 1.6);
  for (const Piece& piece : pieces) {
    if (go_on) go_on = recorder.on_body(piece.bytes, piece.at_s);
    end_s = piece.at_s;
  }
  return recorder.finish({go_on ? error : TransferError::kStopped, ""}, end_s);
}

TEST(StreamRecorder, TimesOfACleanCompletion) {
  const RequestRecord r = record({{2.0, text_chunk("a")},
                                  {2.25, text_chunk("b")},
                                  {2.75, text_chunk("c") + kFinish},
                                  {2.8, usage(5, 3)},
                                  {2.9, kDone}});
  EXPECT_EQ(r.outcome, Outcome::kCompleted);
  EXPECT_EQ(r.kind, "completed");
  EXPECT_EQ(r.text_times_s, (std::vector<double>{2.0, 2.25, 2.75}));
  EXPECT_EQ(r.last_choice_s, 2.75);
  EXPECT_EQ(r.end_s, 2.9);
  EXPECT_EQ(r.usage_prompt_tokens, 5);
  EXPECT_EQ(r.output_tokens(), 3);
  EXPECT_EQ(r.cached_tokens, 3);
  EXPECT_EQ(r.finish_reason, "length");
  const Anomalies& a = r.anomalies;
  EXPECT_FALSE(a.missing_usage || a.missing_done || a.empty_output || a.token_mismatch || a.wrong_length);
}

TEST(StreamRecorder, ARoleChunkOrAnEmptyDeltaIsNoFirstToken) {
  const RequestRecord r =
      record({{1.7, ": ping\n\n" + event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})")},
              {2.0, event(R"({"choices":[{"delta":{"content":"hi"}}]})")},
              {2.5, event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})")},
              {3.0, event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})") + usage(9, 3) + kDone}});
  EXPECT_EQ(r.text_times_s, (std::vector<double>{2.0, 2.5}));
  EXPECT_EQ(r.last_choice_s, 3.0);
  EXPECT_EQ(r.outcome, Outcome::kCompleted);
}

TEST(StreamRecorder, WhatACompletedStreamMayLack) {
  EXPECT_TRUE(
      record({{2.0, text_chunk("a") + text_chunk("b") + text_chunk("c") + kFinish + kDone}}).anomalies.missing_usage);
  const RequestRecord no_done = record({{2.0, text_chunk("a") + kFinish + usage(1, 3)}});
  EXPECT_EQ(no_done.kind, "completed");
  EXPECT_TRUE(no_done.anomalies.missing_done);
  EXPECT_TRUE(record({{2.0, kFinish + usage(1, 3) + kDone}}).anomalies.empty_output);
  EXPECT_TRUE(
      record({{2.0, text_chunk("a") + text_chunk("b") + kFinish + usage(1, 1) + kDone}}).anomalies.token_mismatch);
  EXPECT_TRUE(record({{2.0, text_chunk("a") + kFinish + usage(1, 2) + kDone}}).anomalies.wrong_length);
  // Fewer chunks than tokens is how servers stream several tokens at once.
  EXPECT_FALSE(record({{2.0, text_chunk("abc") + kFinish + usage(1, 3) + kDone}}).anomalies.token_mismatch);
}

TEST(StreamRecorder, StreamedTokenIdsAreCheckedAgainstUsage) {
  const std::string two_ids = event(R"({"choices":[{"text":"ab","token_ids":[5,6]}]})");
  EXPECT_FALSE(record({{2.0, two_ids + two_ids + kFinish + usage(1, 4) + kDone}}).anomalies.token_mismatch);
  EXPECT_TRUE(record({{2.0, two_ids + kFinish + usage(1, 4) + kDone}}).anomalies.token_mismatch);
}

TEST(StreamRecorder, RunningUsageTakesTheLastOne) {
  const std::string one = event(R"({"choices":[{"text":"a"}],"usage":{"prompt_tokens":2,"completion_tokens":1}})");
  const std::string two = event(R"({"choices":[{"text":"b"}],"usage":{"prompt_tokens":2,"completion_tokens":2}})");
  EXPECT_EQ(record({{2.0, one + two + kFinish + kDone}}).output_tokens(), 2);
}

struct Failure {
  const char* name;
  std::vector<Piece> pieces;
  TransferError error;
  int status;
  const char* type;
  Outcome outcome;
  const char* kind;
};

class StreamRecorderFailure : public testing::TestWithParam<Failure> {};

TEST_P(StreamRecorderFailure, HasItsOutcomeAndKind) {
  const Failure& f = GetParam();
  const RequestRecord r = record(f.pieces, f.error, f.status, f.type);
  EXPECT_EQ(r.outcome, f.outcome);
  EXPECT_EQ(r.kind, f.kind);
}

const std::vector<Piece> kHalf = {{2.0, text_chunk("a")}};
const char* const kSse = "text/event-stream";

INSTANTIATE_TEST_SUITE_P(
    Kinds, StreamRecorderFailure,
    testing::Values(
        Failure{"refused", {}, TransferError::kConnectionRefused, 0, "", Outcome::kFailed, "connection_refused"},
        Failure{"unreachable", {}, TransferError::kConnectFailed, 0, "", Outcome::kFailed, "connect_failed"},
        Failure{"reset", kHalf, TransferError::kConnectionReset, 200, kSse, Outcome::kFailed, "connection_reset"},
        Failure{"closed", kHalf, TransferError::kClosedEarly, 200, kSse, Outcome::kFailed, "closed_early"},
        Failure{"bad_http", {}, TransferError::kMalformedHttp, 0, "", Outcome::kFailed, "malformed_http"},
        Failure{"slow", kHalf, TransferError::kTimeout, 200, kSse, Outcome::kTimedOut, "timeout"},
        Failure{"truncated", kHalf, TransferError::kNone, 200, kSse, Outcome::kFailed, "truncated_stream"},
        Failure{
            "not_json", {{2.0, event("{nope")}}, TransferError::kNone, 200, kSse, Outcome::kFailed, "malformed_sse"},
        Failure{"no_object", {{2.0, event("[1]")}}, TransferError::kNone, 200, kSse, Outcome::kFailed, "malformed_sse"},
        Failure{"no_field",
                {{2.0, "{\"choices\":[]}\n"}},
                TransferError::kNone,
                200,
                kSse,
                Outcome::kFailed,
                "malformed_sse"},
        Failure{"in_stream",
                {{2.0, event(R"({"error":{"message":"out of pages"}})")}},
                TransferError::kNone,
                200,
                kSse,
                Outcome::kFailed,
                "stream_error"},
        Failure{"json_type",
                {{2.0, "{}"}},
                TransferError::kNone,
                200,
                "application/json",
                Outcome::kFailed,
                "wrong_content_type"},
        Failure{"no_type", {}, TransferError::kNone, 200, "", Outcome::kFailed, "wrong_content_type"},
        Failure{
            "unauthorized", {{2.0, "{}"}}, TransferError::kNone, 401, "application/json", Outcome::kFailed, "http_401"},
        Failure{
            "bad_gateway", {{2.0, "x"}}, TransferError::kClosedEarly, 502, "text/html", Outcome::kFailed, "http_502"},
        Failure{
            "too_many", {{2.0, "{}"}}, TransferError::kNone, 429, "application/json", Outcome::kRejected, "http_429"},
        Failure{"unavailable", {}, TransferError::kConnectionReset, 503, "", Outcome::kRejected, "http_503"}),
    [](const auto& info) { return info.param.name; });

TEST(StreamRecorder, AResetAfterDoneIsStillACompletion) {
  const RequestRecord r =
      record({{2.0, text_chunk("a") + kFinish + usage(1, 1) + kDone}}, TransferError::kConnectionReset);
  EXPECT_EQ(r.outcome, Outcome::kCompleted);
}

TEST(StreamRecorder, KeepsTheServersOwnWords) {
  EXPECT_EQ(record({{2.0, R"({"error":{"message":"bad key"}})"}}, TransferError::kNone, 401).detail,
            R"({"error":{"message":"bad key"}})");
  EXPECT_EQ(record({{2.0, event(R"({"error":{"message":"out of pages"}})")}}).detail, "out of pages");
}

TEST(StreamRecorder, ReadsTheCertificate) {
  const RequestRecord r = record(
      {{2.0,
        text_chunk("a") + kFinish +
            event(R"({"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1},"certificate":{"certified":true,)"
                  R"("worst":{"tv":0.125},"cells":{"decode":{"metered":40,"certified":38}}}})") +
            kDone}});
  ASSERT_TRUE(r.certificate.has_value());
  EXPECT_TRUE(r.certificate->certified);
  EXPECT_EQ(r.certificate->worst_tv, 0.125);
  EXPECT_EQ(r.certificate->metered_cells, 40);
  EXPECT_EQ(r.certificate->certified_cells, 38);
}

// Wrong types anywhere, random damage: an outcome, never a crash.
TEST(StreamRecorder, DamagedStreamsAlwaysEndInARecord) {
  std::mt19937_64 random(11);
  const std::string good = text_chunk("a") + text_chunk("b") + kFinish + usage(2, 2) + kDone;
  for (int round = 0; round < 3000; ++round) {
    std::string stream = good;
    for (int i = 0; i < 3; ++i) stream[random() % stream.size()] = static_cast<char>(random());
    const RequestRecord r = record({{2.0, stream.substr(0, 40)}, {2.1, stream.substr(40)}});
    ASSERT_TRUE(r.outcome == Outcome::kCompleted || r.outcome == Outcome::kFailed);
    ASSERT_FALSE(r.kind.empty());
  }
  for (const char* odd :
       {R"({"choices":[1]})", R"({"choices":{}})", R"({"choices":[{"text":5,"delta":[],"finish_reason":3}]})",
        R"({"usage":7})", R"({"usage":{"prompt_tokens":"x"}})", R"({"certificate":[]})",
        R"({"choices":[{"delta":{"content":[]}}]})", R"({"error":5})"}) {
    EXPECT_FALSE(record({{2.0, event(odd) + kFinish + kDone}}).kind.empty()) << odd;
  }
}

}  // namespace
}  // namespace assay::sweep
