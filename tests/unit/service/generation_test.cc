// Events of the engine -> text events: stops, echo, scores, cancellation, usage.
#include <gtest/gtest.h>

#include "server/service/collector.h"
#include "server/service/status.h"
#include "tests/unit/service/fakes.h"

namespace assay::testing {
namespace {

std::unique_ptr<Generation> start(ServiceFixture& fixture, const GenerateRequest& request) {
  auto generation = fixture.service->generate(request);
  EXPECT_TRUE(generation.ok()) << generation.status();
  return std::move(*generation);
}

std::vector<TextEvent> run(ServiceFixture& fixture, const GenerateRequest& request) {
  auto generation = start(fixture, request);
  Collector collector(generation->num_choices());
  for (int i = 0; i < 100 && !generation->done(); ++i) {
    for (TextEvent& event : generation->take()) collector.add(std::move(event));
  }
  EXPECT_TRUE(generation->done());
  EXPECT_TRUE(generation->status().ok()) << generation->status();
  return collector.choices(*generation, request.n, std::max(request.n, request.best_of));
}

TEST(Generation, TextAndFinishReasons) {
  ServiceFixture fixture(says("hello"));
  EXPECT_EQ(run(fixture, prompt_request("x"))[0].text, "hello");
  EXPECT_EQ(run(fixture, prompt_request("x"))[0].finish, FinishReason::kStop);
  GenerateRequest shorter = prompt_request("x");
  shorter.sampling.max_tokens = 3;
  EXPECT_EQ(run(fixture, shorter)[0].text, "hel");
  EXPECT_EQ(run(fixture, shorter)[0].finish, FinishReason::kLength);
}

TEST(Generation, Case15NoHalfCharacterInAnyDelta) {
  ServiceFixture fixture(says("\xC4\x8F\xF0\x9F\x8C\xB6!"));
  auto generation = start(fixture, prompt_request("x"));
  std::string all;
  for (const TextEvent& event : generation->take()) {
    EXPECT_EQ(valid_utf8_prefix(event.text), event.text.size());
    EXPECT_EQ(event.text.find("\xEF\xBF\xBD"), std::string::npos);
    all += event.text;
  }
  EXPECT_EQ(all, "\xC4\x8F\xF0\x9F\x8C\xB6!");
}

TEST(Generation, Case16CutCharacterBecomesOneReplacement) {
  ServiceFixture fixture(says("\xF0\x9F\x8C\xB6"));
  GenerateRequest request = prompt_request("x");
  request.sampling.max_tokens = 2;
  EXPECT_EQ(run(fixture, request)[0].text, "\xEF\xBF\xBD");
}

TEST(Generation, Case20StopStringOverTokens) {
  ServiceFixture fixture(says("alpha beta gamma"));
  GenerateRequest request = prompt_request("x");
  request.stop = {"beta gamma"};
  const auto choices = run(fixture, request);
  EXPECT_EQ(choices[0].text, "alpha ");
  EXPECT_EQ(choices[0].finish, FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(choices[0].stop_reason), "beta gamma");
  request.include_stop_str_in_output = true;
  EXPECT_EQ(run(fixture, request)[0].text, "alpha beta gamma");
}

TEST(Generation, StopStringStopsTheEngineAndCountsNoLaterToken) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request = prompt_request("x");
  request.stop = {"b"};
  auto generation = start(fixture, request);
  for (const char c : std::string("abcd")) fixture.engine->last->push(token_event(0, c));
  const auto events = generation->take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "a");
  EXPECT_EQ(fixture.engine->last->stopped, std::vector<int32_t>{0});
  EXPECT_FALSE(generation->done());
  const auto last = generation->take();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].finish, FinishReason::kStop);
  EXPECT_EQ(generation->usage().completion_tokens, 2);
}

TEST(Generation, Case21HeldBackTailIsReleased) {
  ServiceFixture fixture(says("Mars?"));
  GenerateRequest request = prompt_request("x");
  request.stop = {"?!"};
  EXPECT_EQ(run(fixture, request)[0].text, "Mars?");
}

TEST(Generation, Case23NothingIsHeldBackWithoutAPartialMatch) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request = prompt_request("x");
  request.stop = {"ZZZZZZZZZZZZZZ"};
  auto generation = start(fixture, request);
  for (const char c : std::string("abc")) {
    fixture.engine->last->push(token_event(0, c));
    const auto events = generation->take();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].text, std::string(1, c));
  }
}

TEST(Generation, Case25SpecialStopTokenEndsById) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request = prompt_request("x");
  request.stop = {"<turn>"};
  auto generation = start(fixture, request);
  EXPECT_EQ(fixture.engine->requests[0].sampling.stop_token_ids, std::vector<int32_t>{kTurn});
  fixture.engine->last->push(token_event(0, 'a'));
  Event end = token_event(0, kTurn);
  end.stop_token = kTurn;
  end.finish = FinishReason::kStop;
  fixture.engine->last->push(end);
  const auto events = generation->take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].text, "");
  EXPECT_EQ(std::get<std::string>(events[1].stop_reason), "<turn>");
}

TEST(Generation, MinTokensTextIsNotSearched) {
  ServiceFixture fixture(says("ababab"));
  GenerateRequest request = prompt_request("x");
  request.stop = {"b"};
  request.sampling.min_tokens = 3;
  EXPECT_EQ(run(fixture, request)[0].text, "aba");
}

TEST(Generation, Case39EchoWithScores) {
  ServiceFixture fixture(says("Z"));
  GenerateRequest request = prompt_request("abc");
  request.echo = true;
  request.sampling.logprobs = 1;
  request.sampling.max_tokens = 1;
  const auto choices = run(fixture, request);
  EXPECT_EQ(choices[0].text, "abcZ");
  const std::vector<TokenScore>& prompt = *choices[0].prompt_scores;
  ASSERT_EQ(prompt.size(), 3u);
  EXPECT_FALSE(prompt[0].logprob.has_value());
  EXPECT_FLOAT_EQ(*prompt[1].logprob, -0.5f);
  ASSERT_EQ(choices[0].scores.size(), 1u);
  EXPECT_FLOAT_EQ(*choices[0].scores[0].logprob, -1.0f);
  EXPECT_EQ(choices[0].scores[0].text_offset, 3);
  request.sampling.max_tokens = 0;
  const auto prompt_only = run(fixture, request);
  EXPECT_EQ(prompt_only[0].text, "abc");
  EXPECT_EQ(prompt_only[0].prompt_scores->size(), 3u);
  EXPECT_TRUE(prompt_only[0].scores.empty());
  EXPECT_EQ(prompt_only[0].completion_tokens, 0);
}

// Some hundred bytes each: many choices must not multiply them.
TEST(Generation, ChoicesShareTheScoresOfTheirPrompt) {
  ServiceFixture fixture(says("Z"));
  GenerateRequest request = prompt_request("abc");
  request.echo = true;
  request.n = 3;
  request.sampling.logprobs = 1;
  const auto choices = run(fixture, request);
  ASSERT_EQ(choices.size(), 3u);
  ASSERT_NE(choices[0].prompt_scores, nullptr);
  EXPECT_EQ(choices[1].prompt_scores, choices[0].prompt_scores);
  EXPECT_EQ(choices[2].prompt_scores, choices[0].prompt_scores);
  EXPECT_EQ(choices[2].scores[0].text_offset, 3);
}

TEST(Generation, EchoHoldsSequencesUntilThePromptIsScored) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request = prompt_request("ab");
  request.echo = true;
  request.n = 2;
  request.sampling.logprobs = 0;
  auto generation = start(fixture, request);
  fixture.engine->last->push(token_event(1, 'y'));
  EXPECT_TRUE(generation->take().empty());
  Event scores;
  scores.prompt_logprobs = {{'a', 0.0f, 1, {}}, {'b', -2.0f, 1, {}}};
  fixture.engine->last->push(scores);
  fixture.engine->last->push(token_event(0, 'z'));
  std::string first, second;
  for (const TextEvent& event : generation->take()) (event.choice == 0 ? first : second) += event.text;
  EXPECT_EQ(first, "abz");
  EXPECT_EQ(second, "aby");
}

TEST(Generation, EchoDoesNotWaitForScoresThatNeverCome) {
  for (const FinishReason reason : {FinishReason::kAbort, FinishReason::kError}) {
    ServiceFixture fixture(nullptr);
    GenerateRequest request = prompt_request("ab");
    request.echo = true;
    request.sampling.logprobs = 0;
    auto generation = start(fixture, request);
    Event end = end_event(0, reason);
    if (reason == FinishReason::kError) end.status = absl::InternalError("broken");
    fixture.engine->last->push(end);
    EXPECT_TRUE(generation->take().empty());
    EXPECT_TRUE(generation->done());
    EXPECT_FALSE(generation->status().ok());
  }
}

TEST(Generation, Case41PromptMajorChoicesAndUsage) {
  ServiceFixture fixture(says("hi"));
  GenerateRequest request;
  request.input = std::vector<TextPrompt>{std::string("a"), std::vector<int32_t>{'b', 'c'}};
  request.n = 2;
  auto generation = start(fixture, request);
  std::vector<int32_t> order;
  for (const TextEvent& event : generation->take()) {
    if (event.finish) order.push_back(event.choice);
  }
  EXPECT_EQ(order, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(generation->usage().prompt_tokens, 3);
  EXPECT_EQ(generation->usage().completion_tokens, 4 * 3);  // with <eos>
  EXPECT_EQ(fixture.observer.reports.size(), 4u);
  EXPECT_EQ(fixture.observer.num_first, 4);
  EXPECT_EQ(fixture.observer.most_generated, std::vector<int32_t>{3});
}

TEST(Generation, BestOfKeepsTheMostProbable) {
  ServiceFixture fixture([](const Request& request, ScriptedStream& stream) {
    for (int32_t i = 0; i < request.num_sequences; ++i) {
      stream.push(token_event(i, 'a' + i, i == 1 ? -0.1f : -3.0f));
      stream.push(end_event(i, FinishReason::kLength));
    }
  });
  GenerateRequest request = prompt_request("x");
  request.best_of = 3;
  const auto choices = run(fixture, request);
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].text, "b");
  EXPECT_EQ(choices[0].choice, 0);
  EXPECT_EQ(fixture.engine->requests[0].sampling.logprobs, 0);
}

TEST(Generation, ErrorOfOneSequenceFailsTheRequest) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request = prompt_request("x");
  request.n = 2;
  auto generation = start(fixture, request);
  Event error = end_event(1, FinishReason::kError);
  error.status = absl::DeadlineExceededError("too slow");
  fixture.engine->last->push(token_event(0, 'a'));
  fixture.engine->last->push(error);
  EXPECT_EQ(generation->take().size(), 1u);
  EXPECT_TRUE(generation->done());
  EXPECT_EQ(describe_error(generation->status()).http_status, 408);
  EXPECT_TRUE(fixture.engine->last->cancelled);
}

TEST(Generation, Case69DroppingItCancels) {
  ServiceFixture fixture(nullptr);
  start(fixture, prompt_request("x")).reset();
  EXPECT_EQ(fixture.engine->cancelled, 1);
}

CertificateReport sequence_report(int64_t certified, double raw, int32_t step) {
  CertificateReport report;
  report.pool = "certified";
  report.certified = true;
  report.decode.metered = report.decode.certified = certified;
  report.worst = {.bound = std::min(1.0, raw), .raw = raw, .layer = 1, .head = 2, .step = step};
  return report;
}

TEST(Generation, CertificateOfARequestIsThatOfItsSequences) {
  ServiceFixture fixture([](const Request& request, ScriptedStream& stream) {
    ASSERT_TRUE(request.certificate.report);
    EXPECT_EQ(request.certificate.tau, 0.1);
    for (int32_t sequence = 0; sequence < 2; ++sequence) {
      Event end = end_event(sequence, FinishReason::kLength);
      end.certificate = sequence_report(10 + sequence, sequence == 0 ? 3.0 : 2.0, 5 + sequence);
      if (sequence == 1) {
        end.certificate->decode.risk_ranked = 1;
        end.certificate->certified = false;
      }
      stream.push(end);
    }
  });
  GenerateRequest request = prompt_request("x");
  request.n = 2;
  request.certificate = CertificateOptions{};
  request.certificate->report = true;
  request.certificate->tau = 0.1;
  auto generation = start(fixture, request);
  generation->take();
  const auto& report = generation->certificate();
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->certified);
  EXPECT_EQ(report->decode.certified, 21);
  EXPECT_EQ(report->decode.risk_ranked, 1);
  EXPECT_EQ(report->worst.raw, 3.0);
  EXPECT_EQ(report->worst.step, 5);
}

TEST(Generation, TheEnginesRefusalNamesTheKeyOfTheCertificate) {
  ServiceFixture fixture(nullptr);
  fixture.engine->submit_status = absl::InvalidArgumentError("certificate.tau must be above 0");
  EXPECT_EQ(describe_error(fixture.service->generate(prompt_request("x")).status()).param, "certificate.tau");
}

}  // namespace
}  // namespace assay::testing
