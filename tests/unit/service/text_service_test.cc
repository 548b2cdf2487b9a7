// Admission: prompts, limits, names of fields in errors, sampling defaults.
#include "server/service/text_service.h"

#include <gtest/gtest.h>

#include "server/service/status.h"
#include "tests/unit/service/fakes.h"

namespace assay::testing {
namespace {

ErrorView refused(ServiceFixture& fixture, const GenerateRequest& request) {
  auto generation = fixture.service->generate(request);
  EXPECT_FALSE(generation.ok());
  return generation.ok() ? ErrorView{} : describe_error(generation.status());
}

TEST(TextService, Case10ChatAddsNoSpecialTokensCompletionsDo) {
  ServiceFixture fixture(says(""));
  fixture.tokenizer->add_bos = true;
  ASSERT_TRUE(fixture.service->generate(prompt_request("a")).ok());
  ASSERT_TRUE(fixture.service->generate(chat_request({{{"role", "user"}, {"content", "a"}}})).ok());
  EXPECT_EQ(fixture.engine->requests[0].prompt.front(), kTurn);
  EXPECT_EQ(fixture.engine->requests[1].prompt.front(), 'u');
}

TEST(TextService, Case45MaxTokensDefaultsAndClamp) {
  ServiceFixture fixture(says(""));
  GenerateRequest completion = prompt_request("abcd");
  completion.sampling.max_tokens.reset();
  ASSERT_TRUE(fixture.service->generate(completion).ok());
  EXPECT_EQ(fixture.engine->requests.back().sampling.max_tokens, 16);
  completion.sampling.max_tokens = 1000;
  ASSERT_TRUE(fixture.service->generate(completion).ok());
  EXPECT_EQ(fixture.engine->requests.back().sampling.max_tokens, 60);
  ASSERT_TRUE(fixture.service->generate(chat_request({{{"role", "user"}, {"content", "a"}}})).ok());
  EXPECT_EQ(fixture.engine->requests.back().sampling.max_tokens, 64 - 8);
  completion.sampling.max_tokens = 0;
  EXPECT_EQ(refused(fixture, completion).param, "max_tokens");
}

TEST(TextService, Case46And47PromptsThatAreRefused) {
  ServiceFixture fixture(says(""));
  for (const TextPrompt& prompt : std::vector<TextPrompt>{std::string(), std::vector<int32_t>{}, std::vector<int32_t>{-1},
                                                          std::vector<int32_t>{kByteVocab}}) {
    GenerateRequest request;
    request.input = std::vector<TextPrompt>{prompt};
    const ErrorView error = refused(fixture, request);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, "prompt");
  }
  EXPECT_TRUE(fixture.engine->requests.empty());
}

TEST(TextService, TooLongPromptHasTheCodeClientsKnow) {
  ServiceFixture fixture(says(""));
  const ErrorView error = refused(fixture, prompt_request(std::string(64, 'a')));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "prompt");
  EXPECT_TRUE(fixture.service->generate(prompt_request(std::string(63, 'a'))).ok());
  const ErrorView chat = refused(fixture, chat_request({{{"role", "user"}, {"content", std::string(64, 'a')}}}));
  EXPECT_EQ(chat.code, "context_length_exceeded");
  EXPECT_EQ(chat.param, "messages");  // a chat has no field `prompt`
}

TEST(TextService, PromptsThatNoQueueHoldsAreRefusedForGood) {
  ServiceFixture fixture(says(""));
  fixture.engine->config_.max_num_queued_reqs = 4;
  GenerateRequest request = prompt_request("a");
  request.input = std::vector<TextPrompt>(3, TextPrompt(std::string("a")));
  request.n = 2;
  const ErrorView error = refused(fixture, request);
  EXPECT_EQ(error.http_status, 400);  // not 429: a retry cannot help
  EXPECT_EQ(error.param, "prompt");
  EXPECT_TRUE(fixture.engine->requests.empty());
  request.input = std::vector<TextPrompt>(2, TextPrompt(std::string("a")));
  EXPECT_TRUE(fixture.service->generate(request).ok());
}

TEST(TextService, PromptScoresOfARequestAreBounded) {
  ServiceFixture fixture(says(""));
  fixture.engine->config_.max_model_len = fixture.engine->model_.max_model_len = 200'000;
  fixture.engine->config_.max_logprobs = 20;
  GenerateRequest request = prompt_request(std::string(31'250, 'a'));
  request.echo = true;
  request.sampling.logprobs = 0;
  request.n = 128;  // 31,250 x 128 = 4 million
  EXPECT_TRUE(fixture.service->generate(request).ok());
  request.sampling.logprobs = 1;
  EXPECT_EQ(refused(fixture, request).param, "logprobs");
  request.n = 1;
  request.best_of = 128;
  EXPECT_EQ(refused(fixture, request).param, "logprobs");
  request.best_of = 0;
  request.sampling.logprobs = 20;
  EXPECT_TRUE(fixture.service->generate(request).ok());
  request.n = 128;
  request.echo = false;  // nothing of the prompt is scored
  EXPECT_TRUE(fixture.service->generate(request).ok());
}

TEST(TextService, AStopStringThatTheModelCannotSayIsNoStopToken) {
  ServiceFixture fixture(says(""));
  fixture.engine->model_.vocab_size = kTurn;  // the tokenizer has one id more
  GenerateRequest request = prompt_request("a");
  request.stop = {"<eos>", "<turn>"};
  ASSERT_TRUE(fixture.service->generate(request).ok());
  EXPECT_EQ(fixture.engine->requests[0].sampling.stop_token_ids, std::vector<int32_t>{kEos});
}

TEST(TextService, Case56ModelNames) {
  ServiceFixture fixture(says(""));
  GenerateRequest request = prompt_request("a");
  for (const char* name : {"", "fake", "alias"}) {
    request.model = name;
    EXPECT_TRUE(fixture.service->generate(request).ok()) << name;
  }
  request.model = "other";
  const ErrorView error = refused(fixture, request);
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
}

TEST(TextService, Case75QueueFullIsCounted) {
  ServiceFixture fixture(says(""));
  fixture.engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  const ErrorView error = refused(fixture, prompt_request("a"));
  EXPECT_EQ(error.http_status, 429);
  EXPECT_GT(error.retry_after_s, 0);
  EXPECT_EQ(fixture.observer.num_rejected["queue_full"], 1);
}

TEST(TextService, RefusalOfALaterPromptCancelsTheEarlier) {
  ServiceFixture fixture(nullptr);
  GenerateRequest request;
  request.input = std::vector<TextPrompt>{std::string("a"), std::string("b")};
  int submitted = 0;
  fixture.engine = std::make_shared<FakeEngine>([&](const Request&, ScriptedStream&) {
    if (++submitted == 1) fixture.engine->submit_status = absl::ResourceExhaustedError("full");
  });
  TextServiceOptions options;
  options.served_model_names = {"fake"};
  TextService service(fixture.engine, fixture.tokenizer, nullptr, options, &fixture.observer);
  EXPECT_FALSE(service.generate(request).ok());
  EXPECT_EQ(fixture.engine->cancelled, 1);
}

TEST(TextService, Case63NoTemplateRefusesChatOnly) {
  ServiceFixture fixture(says(""));
  TextServiceOptions options;
  options.served_model_names = {"fake"};
  TextService service(fixture.engine, fixture.tokenizer, nullptr, options, &fixture.observer);
  EXPECT_EQ(describe_error(service.generate(chat_request({{{"role", "user"}, {"content", "a"}}})).status()).http_status, 400);
  EXPECT_TRUE(service.generate(prompt_request("a")).ok());
}

TEST(TextService, SamplingDefaultsOfTheModelYieldToTheRequest) {
  ServiceFixture fixture(says(""));
  fixture.engine->model_.sampling_defaults.temperature = 0.6f;
  fixture.engine->model_.sampling_defaults.top_k = 20;
  GenerateRequest request = prompt_request("a");
  request.sampling.top_k = 5;
  ASSERT_TRUE(fixture.service->generate(request).ok());
  EXPECT_FLOAT_EQ(fixture.engine->requests[0].sampling.temperature, 0.6f);
  EXPECT_EQ(fixture.engine->requests[0].sampling.top_k, 5);
}

TEST(TextService, OptionsThatContradict) {
  ServiceFixture fixture(says(""));
  GenerateRequest request = prompt_request("a");
  request.n = 2;
  request.best_of = 1;
  EXPECT_EQ(refused(fixture, request).param, "best_of");
  request.best_of = 3;
  request.stream = true;
  EXPECT_EQ(refused(fixture, request).param, "best_of");
  request = prompt_request("a");
  request.sampling.stop_token_ids = {kByteVocab};
  EXPECT_EQ(refused(fixture, request).param, "stop_token_ids");
  request = prompt_request("a");
  request.sampling.logit_bias = {{-5, 1.0f}};
  EXPECT_EQ(refused(fixture, request).param, "logit_bias");
  request = prompt_request("a");
  request.sampling.logprobs = 1'000'000;  // case 37
  EXPECT_EQ(refused(fixture, request).param, "logprobs");
}

TEST(TextService, EngineMessagesNameTheField) {
  ServiceFixture fixture(says(""));
  fixture.engine->submit_status = absl::InvalidArgumentError("temperature must be between 0 and 2, got 7");
  EXPECT_EQ(refused(fixture, prompt_request("a")).param, "temperature");
}

TEST(TextService, TokenizeAndDetokenize) {
  ServiceFixture fixture(says(""));
  TokenizeRequest request;
  request.input = std::string("ab");
  EXPECT_EQ(fixture.service->tokenize(request)->tokens, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(*fixture.service->detokenize({'h', 'i', kEos}, true), "hi");
  EXPECT_EQ(*fixture.service->detokenize({'h', 'i', kEos}, false), "hi<eos>");
  EXPECT_FALSE(fixture.service->detokenize({9999}, false).ok());
}

}  // namespace
}  // namespace assay::testing
