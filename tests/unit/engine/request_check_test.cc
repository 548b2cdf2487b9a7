#include "engine/core/request_check.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace assay {
namespace {

using testing::HasSubstr;

const RequestLimits kLimits{.vocab_size = 100,
                            .max_model_len = 32,
                            .max_kv_tokens = 1000,
                            .max_logprobs = 5,
                            .max_num_queued_reqs = 8,
                            .eos_token_ids = {99}};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const std::chrono::steady_clock::time_point kNow{std::chrono::seconds(100)};

Request good_request() {
  Request request;
  request.prompt = {1, 2, 3};
  return request;
}

struct BadCase {
  std::string name;
  std::function<void(Request&)> spoil;
  std::string message;  // a part of it
};

class BadRequestTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadRequestTest, IsRefusedByNameOfTheField) {
  Request request = good_request();
  GetParam().spoil(request);
  const absl::Status status = check_and_resolve(request, kLimits, kNow);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

#define CASE(name, message, ...)                                                                 \
  BadCase {                                                                                      \
#name, [](Request& r) { [[maybe_unused]] SamplingParams& s = r.sampling; __VA_ARGS__; }, message \
  }

INSTANTIATE_TEST_SUITE_P(
    Fields, BadRequestTest,
    testing::Values(CASE(EmptyPrompt, "prompt must have at least one token", r.prompt.clear()),
                    CASE(PromptIdTooLarge, "prompt has the token id 100", r.prompt[1] = 100),
                    CASE(PromptIdNegative, "prompt has the token id -1", r.prompt[1] = -1),
                    CASE(PromptFillsTheContext, "prompt has 32 tokens", r.prompt.assign(32, 1)),
                    CASE(PromptOverTheContext, "prompt has 33 tokens", r.prompt.assign(33, 1); s.max_tokens = 0;
                         s.prompt_logprobs = 1),
                    CASE(TemperatureNegative, "temperature must be between 0 and 2", s.temperature = -0.1f),
                    CASE(TemperatureHigh, "temperature must be between 0 and 2, got 2.5", s.temperature = 2.5f),
                    CASE(TemperatureNan, "temperature", s.temperature = kNan),
                    CASE(TemperatureInf, "temperature", s.temperature = kInf),
                    CASE(TopPZero, "top_p must be above 0 and at most 1", s.top_p = 0.0f),
                    CASE(TopPHigh, "top_p", s.top_p = 1.5f), CASE(TopPNan, "top_p", s.top_p = kNan),
                    CASE(TopKLow, "top_k must be at least 1", s.top_k = -2),
                    CASE(MinPNegative, "min_p", s.min_p = -0.5f), CASE(MinPHigh, "min_p", s.min_p = 1.1f),
                    CASE(RepetitionZero, "repetition_penalty must be between 0.01 and 100",
                         s.repetition_penalty = 0.0f),
                    CASE(RepetitionSoSmallThatLogitsOverflow, "repetition_penalty", s.repetition_penalty = 1e-40f),
                    CASE(RepetitionInf, "repetition_penalty", s.repetition_penalty = kInf),
                    CASE(PresenceHigh, "presence_penalty must be between -2 and 2", s.presence_penalty = 2.1f),
                    CASE(FrequencyNan, "frequency_penalty", s.frequency_penalty = kNan),
                    CASE(BiasId, "logit_bias has the token id 100", s.logit_bias = {{100, 1.0f}}),
                    CASE(BiasValue, "logit_bias must be between -100 and 100", s.logit_bias = {{1, 100.5f}}),
                    CASE(BiasNan, "logit_bias", s.logit_bias = {{1, kNan}}),
                    CASE(StopId, "stop_token_ids has the token id 100", s.stop_token_ids = {100}),
                    CASE(MaxTokensNegative, "max_tokens must be at least 1, got -1", s.max_tokens = -1),
                    CASE(MaxTokensZero, "max_tokens must be at least 1", s.max_tokens = 0),
                    CASE(MinTokensNegative, "min_tokens must not be negative", s.min_tokens = -1),
                    CASE(MinOverMax, "min_tokens must not exceed max_tokens, got 17 and 16", s.min_tokens = 17),
                    CASE(Logprobs, "logprobs must be between 0 and 5", s.logprobs = 6),
                    CASE(LogprobsLow, "logprobs", s.logprobs = -2),
                    CASE(PromptLogprobs, "prompt_logprobs must be between 0 and 5", s.prompt_logprobs = 6),
                    CASE(NoSequences, "n must be between 1 and 8, got 0", r.num_sequences = 0),
                    CASE(SequencesOverTheQueue, "n must be between 1 and 8, got 9", r.num_sequences = 9)),
    [](const auto& test) { return test.param.name; });

TEST(RequestCheck, ADeadlineThatHasPassedIsNotStarted) {
  Request request = good_request();
  request.deadline = kNow;
  EXPECT_TRUE(absl::IsDeadlineExceeded(check_and_resolve(request, kLimits, kNow)));
  request.deadline = kNow + std::chrono::milliseconds(1);
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());
}

TEST(RequestCheck, APromptLargerThanThePoolCanNeverRun) {
  RequestLimits limits = kLimits;
  limits.max_kv_tokens = 8;
  Request request = good_request();
  request.prompt.assign(8, 1);
  const absl::Status status = check_and_resolve(request, limits, kNow);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("prompt has 8 tokens, more than the whole KV cache"));
  request.prompt.assign(7, 1);
  ASSERT_TRUE(check_and_resolve(request, limits, kNow).ok());
  EXPECT_EQ(request.sampling.max_tokens, 1);
}

TEST(RequestCheck, MoreThan128SequencesAreNeverTaken) {
  RequestLimits limits = kLimits;
  limits.max_num_queued_reqs = 1024;
  Request request = good_request();
  request.num_sequences = 128;
  EXPECT_TRUE(check_and_resolve(request, limits, kNow).ok());
  request.num_sequences = 129;
  EXPECT_THAT(std::string(check_and_resolve(request, limits, kNow).message()),
              HasSubstr("n must be between 1 and 128"));
}

TEST(RequestCheck, MinTokensMustLeaveATokenToSample) {
  Request request = good_request();
  request.sampling.min_tokens = 1;
  for (int32_t id = 0; id < 98; ++id) request.sampling.stop_token_ids.push_back(id);
  request.sampling.stop_token_ids.insert(request.sampling.stop_token_ids.end(), 50, 7);  // named twice counts once
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());  // 98 is left
  request.sampling.stop_token_ids.push_back(98);
  const absl::Status status = check_and_resolve(request, kLimits, kNow);  // with the end-of-sequence id 99: all
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("stop_token_ids must leave a token to sample"));
  request.sampling.ignore_eos = true;
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());  // 99 may come
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 0;
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());  // nothing is ever forbidden
}

TEST(RequestCheck, LimitsAreInclusive) {
  Request request = good_request();
  request.prompt.assign(31, 99);
  request.num_sequences = 8;
  SamplingParams& sampling = request.sampling;
  sampling.temperature = 2.0f;
  sampling.top_p = 1.0f;
  sampling.min_p = 1.0f;
  sampling.presence_penalty = -2.0f;
  sampling.frequency_penalty = 2.0f;
  sampling.logit_bias = {{99, -100.0f}, {0, 100.0f}};
  sampling.stop_token_ids = {0, 99};
  sampling.repetition_penalty = 0.01f;
  sampling.min_tokens = sampling.max_tokens;
  sampling.logprobs = 5;
  sampling.prompt_logprobs = 5;
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());
}

TEST(RequestCheck, ResolvesWhatIsLeftOpen) {
  Request request = good_request();
  request.sampling.top_k = -1;
  request.sampling.max_tokens = std::numeric_limits<int32_t>::max();
  request.sampling.min_tokens = 500;
  ASSERT_TRUE(check_and_resolve(request, kLimits, kNow).ok());
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.max_tokens, 29);
  EXPECT_EQ(request.sampling.min_tokens, 29);
}

TEST(RequestCheck, APromptThatIsOnlyScoredMayFillTheContext) {
  Request request = good_request();
  request.prompt.assign(32, 1);
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = 0;
  EXPECT_TRUE(check_and_resolve(request, kLimits, kNow).ok());
}

}  // namespace
}  // namespace assay
