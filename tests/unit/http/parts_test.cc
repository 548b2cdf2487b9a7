// The parts of the HTTP room that need no connection: JSON, fields, OpenAI requests, keys, origins, paths, heads, ids.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "server/http/access.h"
#include "server/http/error_reply.h"
#include "server/http/head_text.h"
#include "server/http/openai_format.h"
#include "server/http/openai_reply.h"
#include "server/http/openai_request.h"
#include "server/http/request_reader.h"
#include "server/service/fields.h"
#include "server/service/request_id.h"
#include "server/service/status.h"
#include "tests/unit/service/fakes.h"

namespace assay::http {
namespace {

std::string wrong_chat_field(const std::string& more) {
  const auto body = parse_json(R"({"messages":[{"role":"user","content":"x"}],)" + more + "}");
  if (!body.ok()) return "(json)";
  const auto request = parse_chat_request(*body);
  return request.ok() ? "" : describe_error(request.status()).param;
}

std::string wrong_completion_field(const std::string& text) {
  const auto body = parse_json(text);
  if (!body.ok()) return "(json)";
  const auto request = parse_completion_request(*body);
  return request.ok() ? "" : describe_error(request.status()).param;
}

TEST(Json, Case51WhatIsNotJson) {
  for (const std::string text : {"", "{: \"model\"", "{\"a\":1", "\xEF\xBB\xBF{}", "{} x", "{\"a\":NaN}", "{\"a\":Infinity}",
                                 "{\"a\":1e400}", "{\"a\":\"\xFF\"}", "{\"a\":\"\\ud800\"}", "{'a':1}"}) {
    EXPECT_EQ(parse_json(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(parse_json(std::string(10'000, '[')).ok());
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')).ok());
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\"").ok());
  EXPECT_EQ((*parse_json(R"({"a":1,"a":2})"))["a"], 2);
  for (const char* text : {"[]", "\"x\"", "5", "null"}) EXPECT_FALSE(parse_chat_request(*parse_json(text)).ok()) << text;
}

std::string object_of(int num_keys, const std::string& prefix) {
  std::string text;
  for (int i = 0; i < num_keys; ++i) text += (text.empty() ? "\"" : ",\"") + prefix + std::to_string(i) + "\":1";
  return "{" + text + "}";
}

TEST(Json, KeysPerObjectAreBounded) {
  EXPECT_TRUE(parse_json(object_of(1024, "")).ok());
  EXPECT_FALSE(parse_json(object_of(1025, "")).ok());
  EXPECT_EQ(wrong_chat_field("\"logit_bias\":" + object_of(1024, "")), "");
  EXPECT_EQ(wrong_chat_field("\"logit_bias\":" + object_of(1025, "")), "(json)");
  EXPECT_FALSE(parse_json("[0,{\"a\":" + object_of(1025, "x") + "}]").ok());
  std::string many = object_of(1024, "x");
  for (int i = 0; i < 100; ++i) many += "," + object_of(1024, "x");
  EXPECT_EQ(parse_json("[" + many + "]").status().code(), absl::StatusCode::kInvalidArgument);
}

// 8 MiB of the worst shapes: each costs about what it costs to read it.
TEST(Json, TheCostGrowsWithTheTextOnly) {
  std::string many_small = "[{}";
  while (many_small.size() < (8 << 20)) many_small += ",{}";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(parse_json(many_small + "]").ok());
  EXPECT_FALSE(parse_json(object_of(800'000, "")).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // the square would take hours
}

TEST(Json, Case17OutputSurvivesBadUtf8) { EXPECT_EQ(to_text(Json("a\xFF" "b")), "\"a\xEF\xBF\xBD" "b\""); }

TEST(OpenAiRequest, Case52WrongTypesAreNamed) {
  EXPECT_EQ(wrong_chat_field(R"("stream":"false")"), "stream");
  EXPECT_EQ(wrong_chat_field(R"("temperature":"0.7")"), "temperature");
  EXPECT_EQ(wrong_chat_field(R"("n":"2")"), "n");
  EXPECT_EQ(wrong_chat_field(R"("model":5)"), "model");
  EXPECT_EQ(wrong_chat_field(R"("logprobs":1)"), "logprobs");
  EXPECT_EQ(wrong_chat_field(R"("seed":"x")"), "seed");
  EXPECT_EQ(wrong_chat_field(R"("stop_token_ids":[1.5])"), "stop_token_ids");
  EXPECT_EQ(wrong_chat_field(R"("stream_options":{"include_usage":"yes"})"), "stream_options");
  EXPECT_EQ(describe_error(parse_chat_request(*parse_json(R"({"messages":"hi"})")).status()).param, "messages");
  EXPECT_EQ(describe_error(parse_chat_request(*parse_json("{}")).status()).param, "messages");
}

TEST(OpenAiRequest, Case54UnknownFieldsAndNullsPass) {
  EXPECT_EQ(wrong_chat_field(R"("metadata":{"a":1},"store":true,"chat_id":"x","reasoning_effort":"low","user":"",
    "logit_bias":{},"stop":null,"seed":null,"tools":[],"tool_choice":"auto","response_format":{"type":"text"},
    "parallel_tool_calls":true,"logprobs":null,"top_logprobs":null,"n":1,"max_tokens":null,"stream_options":null,
    "top_k":-1,"repetition_penalty":1.0,"temperature":null)"), "");
}

TEST(OpenAiRequest, Case45MaxTokens) {
  for (const char* wrong : {"-1", "2.5", "9223372036854775808", "\"256\"", "true", "1e400"}) {
    const std::string field = wrong_chat_field(std::string("\"max_tokens\":") + wrong);
    EXPECT_TRUE(field == "max_tokens" || field == "(json)") << wrong << " " << field;
  }
  EXPECT_EQ(wrong_chat_field("\"max_completion_tokens\":0"), "max_completion_tokens");
  EXPECT_EQ(wrong_chat_field("\"max_tokens\":9,\"max_completion_tokens\":-1"), "max_completion_tokens");
  const auto both = parse_chat_request(
      *parse_json(R"({"messages":[{"role":"user","content":"x"}],"max_tokens":5,"max_completion_tokens":16.0})"));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->generate.sampling.max_tokens, 16);
}

TEST(OpenAiRequest, Case24Stops) {
  for (const char* good : {"null", "[]", "\"x\"", "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"]"}) {
    EXPECT_EQ(wrong_chat_field(std::string("\"stop\":") + good), "") << good;
  }
  for (const char* bad : {"\"\"", "[\"\"]", "[1]", "{}", "5"}) {
    EXPECT_EQ(wrong_chat_field(std::string("\"stop\":") + bad), "stop") << bad;
  }
}

TEST(OpenAiRequest, Case57And59Numbers) {
  for (const char* bad : {"2.01", "1e15", "-1"}) EXPECT_EQ(wrong_chat_field(std::string("\"temperature\":") + bad), "temperature");
  for (const char* good : {"0", "1e-6", "2", "2.0"}) EXPECT_EQ(wrong_chat_field(std::string("\"temperature\":") + good), "");
  for (const char* good : {"0", "-1", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_EQ(wrong_chat_field(std::string("\"seed\":") + good), "") << good;
  }
  EXPECT_EQ(wrong_chat_field(R"("seed":18446744073709551616)"), "seed");
  EXPECT_EQ(wrong_chat_field(R"("top_p":0)"), "top_p");
  EXPECT_EQ(wrong_chat_field(R"("logit_bias":{"x":1})"), "logit_bias");
  EXPECT_EQ(wrong_chat_field(R"("logit_bias":{"5":101})"), "logit_bias");
}

TEST(OpenAiRequest, Case36TopLogprobsNeedsLogprobs) {
  EXPECT_EQ(wrong_chat_field(R"("top_logprobs":2)"), "top_logprobs");
  EXPECT_EQ(wrong_chat_field(R"("top_logprobs":2,"logprobs":true)"), "");
}

TEST(OpenAiRequest, Case68WhatIsNotSupportedIsSaid) {
  EXPECT_EQ(wrong_chat_field(R"("response_format":{"type":"json_object"})"), "response_format");
  EXPECT_EQ(wrong_chat_field(R"("response_format":{"type":"json_schema","json_schema":{"type":"notatype"}})"), "response_format");
  EXPECT_EQ(wrong_chat_field(R"("tools":[{"type":"function"}])"), "tools");
  EXPECT_EQ(wrong_chat_field(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(wrong_chat_field(R"("guided_regex":"(")"), "guided_regex");
  EXPECT_EQ(wrong_completion_field(R"({"prompt":"a","suffix":"b"})"), "suffix");
}

TEST(OpenAiRequest, Case47PromptForms) {
  for (const char* good : {R"("a")", R"(["a","b"])", "[1,2,3]", "[[1,2],[3]]", "[1.0]", R"([""])"}) {
    EXPECT_EQ(wrong_completion_field(std::string(R"({"prompt":)") + good + "}"), "") << good;
  }
  for (const char* bad : {"[1.5]", R"(["a",1])", R"([1,"a"])", R"([["a"]])", "5", "{}", "null", "[5279552648203111001.5]"}) {
    EXPECT_EQ(wrong_completion_field(std::string(R"({"prompt":)") + bad + "}"), "prompt") << bad;
  }
  EXPECT_EQ(wrong_completion_field("{}"), "prompt");
}

// The number is told as it was sent, however far from any vocabulary it is.
TEST(OpenAiRequest, Case47TokenIdsAreNamedAsSent) {
  for (const char* id : {"-1", "2147483648", "-2147483649", "5279552648203111001", "18446744073709551615", "-9223372036854775808"}) {
    for (const std::string& text : {fmt::format(R"({{"prompt":[{}]}})", id), fmt::format(R"({{"prompt":[[1],[2,{}]]}})", id),
                                    fmt::format(R"({{"prompt":"a","stop_token_ids":[{}]}})", id)}) {
      const auto request = parse_completion_request(*parse_json(text));
      ASSERT_FALSE(request.ok()) << text;
      EXPECT_NE(request.status().message().find(fmt::format("token id {} is out of vocabulary", id)), std::string::npos)
          << request.status();
    }
  }
  const auto biased = parse_completion_request(*parse_json(R"({"prompt":"a","logit_bias":{"99999999999":1}})"));
  EXPECT_NE(biased.status().message().find("token id 99999999999 is out of vocabulary"), std::string::npos) << biased.status();
  const auto half = parse_completion_request(*parse_json(R"({"prompt":[1.5]})"));
  EXPECT_NE(half.status().message().find("whole numbers, got 1.5"), std::string::npos) << half.status();
}

// Tokens that have been generated, but whose text is in a later chunk, are not counted yet.
TEST(Reply, ContinuousUsageIsThatOfItsChunk) {
  using namespace ::assay::testing;
  ServiceFixture fixture(says("abc"));
  auto generation = fixture.service->generate(prompt_request("xy"));
  ASSERT_TRUE(generation.ok());
  ReplyOptions options;
  options.stream = options.include_usage = options.continuous_usage = true;
  Reply reply = make_openai_reply(*std::move(generation), options);
  const std::string stream = reply.producer->take().bytes;  // everything at once
  std::vector<int> counted;
  for (size_t at = stream.find("\"completion_tokens\":"); at != std::string::npos; at = stream.find("\"completion_tokens\":", at + 1)) {
    counted.push_back(std::stoi(stream.substr(at + 20)));
  }
  EXPECT_EQ(counted, (std::vector<int>{1, 2, 3, 4, 4}));  // the fourth is the end of sequence
}

TEST(OpenAiRequest, Certificate) {
  EXPECT_EQ(wrong_chat_field(R"("certificate":{"report":true,"tau":0.2,"delta":0.001,"policy":"exact"})"), "");
  EXPECT_EQ(wrong_chat_field(R"("certificate":{"tua":0.1})"), "certificate.tua");
  EXPECT_EQ(wrong_chat_field(R"("certificate":{"policy":"hope"})"), "certificate.policy");
  EXPECT_EQ(wrong_chat_field(R"("certificate":{"tau":"x"})"), "certificate.tau");
  EXPECT_EQ(wrong_chat_field(R"("certificate":true)"), "certificate");
}

// Scores of a long prompt take seconds to write: not on the thread that serves everybody's streams.
TEST(Reply, StreamedScoresOfAPromptAreWrittenByAWorker) {
  using namespace ::assay::testing;
  ServiceFixture fixture(says("Z"));
  GenerateRequest request = prompt_request("abc");
  request.echo = true;
  request.sampling.logprobs = 1;
  request.sampling.max_tokens = 1;
  auto generation = fixture.service->generate(request);
  ASSERT_TRUE(generation.ok());
  ReplyOptions options;
  options.stream = options.scores = true;
  options.top = 1;
  Reply reply = make_openai_reply(*std::move(generation), options);
  Production production = reply.producer->take();
  EXPECT_TRUE(production.bytes.empty());
  ASSERT_TRUE(production.make);
  production = production.make();
  EXPECT_TRUE(production.end);
  for (const char* tokens : {R"("tokens":["a","b","c"])", R"("tokens":["Z"])"}) {
    EXPECT_NE(production.bytes.find(tokens), std::string::npos) << production.bytes;
  }
  EXPECT_TRUE(production.bytes.ends_with("data: [DONE]\n\n"));
}

TEST(Format, PartsOfCharactersStayApart) {
  const ::assay::testing::ByteTokenizer tokenizer;
  TokenScore score;
  score.token = 0xC4;
  score.bytes = "\xC4";
  score.logprob = -1.0f;
  score.top = {{0xC4, -1.0f}, {0xC5, -2.0f}};
  TextEvent event;
  event.scores = {score};
  const Json json = completion_logprobs(event, 2, tokenizer);
  EXPECT_EQ(json["tokens"][0], "bytes:\\xc4");
  EXPECT_EQ(json["top_logprobs"][0].size(), 2u);
  const Json chat = chat_logprobs({score}, 1, tokenizer);
  EXPECT_EQ(chat["content"][0]["bytes"], Json::array({0xC4}));
  EXPECT_EQ(chat["content"][0]["top_logprobs"].size(), 1u);
}

TEST(Error, Case55Envelope) {
  const Json body = *parse_json(error_reply(field_error("n", "n is wrong")).body);
  EXPECT_EQ(body["error"]["message"], "n is wrong");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "n");
  EXPECT_TRUE(body["error"]["code"].is_null());
}

TEST(Access, Case73Keys) {
  const KeyRing keys({"one", "two"});
  EXPECT_TRUE(keys.check("Bearer one").ok());
  EXPECT_TRUE(keys.check("bearer two").ok());
  for (const char* wrong : {"", "one", "Basic one", "Bearer", "Bearer ", "Bearer three", "Bearer one two"}) {
    EXPECT_EQ(keys.check(wrong).code(), absl::StatusCode::kUnauthenticated) << wrong;
  }
  EXPECT_TRUE(KeyRing({}).check("Bearer ").ok());
}

TEST(Access, Origins) {
  HttpRequest request;
  request.headers = {{"Origin", "https://ui.example"}, {"access-control-request-headers", "authorization,x-stainless-os\r\n:"}};
  EXPECT_TRUE(Origins({}).reply_headers(request).empty());
  EXPECT_TRUE(Origins({"https://other"}).reply_headers(request).empty());
  EXPECT_FALSE(Origins({"https://ui.example"}).reply_headers(request).empty());
  const Headers preflight = Origins({"*"}).preflight_headers(request, "POST");
  EXPECT_EQ(preflight.back().second, "authorization,x-stainless-os");
}

TEST(Target, Paths) {
  std::string path, query;
  ASSERT_TRUE(split_target("/v1//models/?a=b", path, query));
  EXPECT_EQ(path, "/v1/models");
  EXPECT_EQ(query, "a=b");
  ASSERT_TRUE(split_target("http://host:80/v1/models/a%2Fb", path, query));
  EXPECT_EQ(path, "/v1/models/a/b");
  ASSERT_TRUE(split_target("/", path, query));
  EXPECT_EQ(path, "/");
  EXPECT_FALSE(split_target("/%zz", path, query));
  EXPECT_FALSE(split_target("/%2", path, query));
}

TEST(RequestId, Case50IsBoundedAndClean) {
  EXPECT_EQ(clean_request_id("abc-1.2"), "abc-1.2");
  EXPECT_EQ(clean_request_id("a\r\nSet-Cookie: x"), "aSet-Cookie:x");
  EXPECT_EQ(clean_request_id(std::string(1 << 20, 'a')).size(), kMaxRequestIdLength);
  EXPECT_EQ(clean_request_id("").size(), 32u);
  EXPECT_NE(clean_request_id(" "), clean_request_id(" "));
}

TEST(Head, Framing) {
  const std::string head = head_text(200, {{"A", "b"}}, BodyFraming::kChunked, 0, false, false);
  EXPECT_NE(head.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_NE(head.find("Connection: close\r\n"), std::string::npos);
  EXPECT_EQ(chunk_text(""), "0\r\n\r\n");
  EXPECT_EQ(chunk_text("0123456789abcdef"), "10\r\n0123456789abcdef\r\n");
}

}  // namespace
}  // namespace assay::http
