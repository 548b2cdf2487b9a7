// The gRPC server over loopback with a fake engine: streams, refusals, cancellation, drain.
#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "assay/v1/inference.grpc.pb.h"
#include "server/grpc/server.h"
#include "tests/unit/service/fakes.h"

namespace assay::rpc {
namespace {

using assay::testing::end_event;
using assay::testing::FakeEngine;
using assay::testing::says;
using assay::testing::ServiceFixture;
using assay::testing::token_event;

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

class GrpcServerTest : public ::testing::Test {
 protected:
  void start(FakeEngine::Script script, ServerOptions options = {}) {
    fixture_ = std::make_unique<ServiceFixture>(std::move(script));
    options.port = 0;
    ServerHooks hooks;
    hooks.authorize = [this](std::string_view sent) {
      return key_.empty() || sent == key_ ? absl::OkStatus() : absl::UnauthenticatedError("no key");
    };
    hooks.on_call = [this](const CallRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
    auto server = Server::start(options, lifecycle_, std::move(hooks));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Inference::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                       grpc::InsecureChannelCredentials()));
  }

  void serve(FakeEngine::Script script, ServerOptions options = {}) {
    start(std::move(script), options);
    lifecycle_.loaded(fixture_->service);
  }

  static v1::GenerateRequest prompt(const std::string& text, int32_t max_tokens = 32) {
    v1::GenerateRequest request;
    request.set_prompt(text);
    request.mutable_sampling()->set_max_tokens(max_tokens);
    return request;
  }

  grpc::Status generate(const v1::GenerateRequest& request, std::vector<v1::GenerateResponse>* messages = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    auto reader = stub_->Generate(&context, request);
    for (v1::GenerateResponse message; reader->Read(&message);) {
      if (messages != nullptr) messages->push_back(message);
    }
    return reader->Finish();
  }

  std::vector<CallRecord> records() {
    const std::lock_guard lock(mutex_);
    return records_;
  }

  std::string key_;
  std::mutex mutex_;
  std::vector<CallRecord> records_;
  std::unique_ptr<ServiceFixture> fixture_;
  Lifecycle lifecycle_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(GrpcServerTest, StreamsTextThenUsage) {
  serve(says("hello"));
  std::vector<v1::GenerateResponse> messages;
  v1::GenerateRequest request = prompt("abc");
  request.set_request_id("id-1");
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->set_logprobs(1);
  ASSERT_TRUE(generate(request, &messages).ok());
  std::map<int, std::string> texts;
  for (const auto& message : messages) {
    texts[message.index()] += message.text();
    EXPECT_EQ(message.id(), "id-1");
    EXPECT_EQ(message.has_usage(), &message == &messages.back());
    for (const auto& score : message.logprobs()) {
      EXPECT_EQ(score.top_size(), score.chosen().token_id() == assay::testing::kEos ? 0 : 2);  // as the fake says
    }
  }
  EXPECT_THAT(texts, ::testing::ElementsAre(::testing::Pair(0, "hello"), ::testing::Pair(1, "hello")));
  EXPECT_EQ(messages.back().finish_reason(), "stop");
  EXPECT_EQ(messages.back().usage().prompt_tokens(), 3);
  EXPECT_EQ(messages.back().usage().completion_tokens(), 12);  // with two end tokens
  ASSERT_TRUE(eventually([&] { return server_->active_calls() == 0; }));
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0].code, "OK");
  EXPECT_THAT(records()[0].fields, ::testing::HasSubstr("completion_tokens=12"));
}

TEST_F(GrpcServerTest, PassesEveryFieldOn) {
  serve(says("x"));
  v1::GenerateRequest request = prompt("abc", 7);
  v1::SamplingOptions& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.5);
  sampling.set_top_p(0.75);
  sampling.set_top_k(-1);
  sampling.set_min_p(0.125);
  sampling.set_seed(-1);
  sampling.set_repetition_penalty(1.5);
  sampling.set_presence_penalty(-1.5);
  sampling.set_frequency_penalty(1.25);
  (*sampling.mutable_logit_bias())[5] = -2.5;
  sampling.set_min_tokens(2);
  sampling.set_ignore_eos(true);
  sampling.add_stop_token_ids(9);
  request.set_priority(-3);
  request.set_cache_salt("salt");
  request.mutable_certificate()->set_tau(0.1);
  request.mutable_certificate()->set_policy("observe");
  ASSERT_TRUE(generate(request).ok());
  const Request& seen = fixture_->engine->requests.at(0);
  EXPECT_EQ(seen.prompt, (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_FLOAT_EQ(seen.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(seen.sampling.top_p, 0.75f);
  EXPECT_EQ(seen.sampling.top_k, 0);
  EXPECT_FLOAT_EQ(seen.sampling.min_p, 0.125f);
  EXPECT_EQ(seen.sampling.seed, UINT64_MAX);
  EXPECT_FLOAT_EQ(seen.sampling.repetition_penalty, 1.5f);
  EXPECT_FLOAT_EQ(seen.sampling.presence_penalty, -1.5f);
  EXPECT_FLOAT_EQ(seen.sampling.frequency_penalty, 1.25f);
  EXPECT_THAT(seen.sampling.logit_bias, ::testing::ElementsAre(::testing::Pair(5, -2.5f)));
  EXPECT_EQ(seen.sampling.max_tokens, 7);
  EXPECT_EQ(seen.sampling.min_tokens, 2);
  EXPECT_TRUE(seen.sampling.ignore_eos);
  EXPECT_THAT(seen.sampling.stop_token_ids, ::testing::Contains(9));
  EXPECT_EQ(seen.priority, -3);
  EXPECT_EQ(seen.cache_salt, "salt");
  EXPECT_EQ(seen.certificate.tau, 0.1);
  EXPECT_TRUE(seen.certificate.report);
  EXPECT_EQ(seen.certificate.policy, CertificateOptions::Policy::kObserve);
}

TEST_F(GrpcServerTest, CancellingEndsTheRequest) {
  serve([](const Request&, assay::testing::ScriptedStream& stream) { stream.push(token_event(0, 'a')); });
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, prompt("abc"));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.text(), "a");
  EXPECT_EQ(server_->active_calls(), 1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return fixture_->engine->cancelled == 1 && server_->active_calls() == 0; }));
  EXPECT_EQ(records().at(0).code, "CANCELLED");
}

TEST_F(GrpcServerTest, TheDeadlineEndsTheRequest) {
  serve([](const Request&, assay::testing::ScriptedStream&) {});  // never says anything
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  auto reader = stub_->Generate(&context, prompt("abc"));
  v1::GenerateResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return fixture_->engine->cancelled == 1 && server_->active_calls() == 0; }));
  EXPECT_EQ(records().at(0).code, "DEADLINE_EXCEEDED");
}

TEST_F(GrpcServerTest, ErrorsKeepTheirCodeAndWords) {
  serve([](const Request&, assay::testing::ScriptedStream& stream) {
    Event event = end_event(0, FinishReason::kError);
    event.status = absl::DeadlineExceededError("over --request-timeout");
    stream.push(event);
  });
  grpc::Status status = generate(prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "over --request-timeout");
  fixture_->engine->submit_status = absl::ResourceExhaustedError("the queue is full");
  status = generate(prompt("abc"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "the queue is full");
  v1::GenerateRequest wrong = prompt("abc");
  wrong.mutable_sampling()->set_temperature(2.1);
  status = generate(wrong);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "temperature must be at least 0 and at most 2, got 2.1");
  wrong = prompt("abc");
  wrong.set_model("other");
  EXPECT_EQ(generate(wrong).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, TakesRequestsOnlyBetweenLoadingAndDrain) {
  start(says("x"));
  EXPECT_EQ(generate(prompt("a")).error_message(), "the model is still loading");
  lifecycle_.loaded(fixture_->service);
  EXPECT_TRUE(generate(prompt("a")).ok());
  lifecycle_.drain();
  const grpc::Status status = generate(prompt("a"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the server is shutting down");
}

TEST_F(GrpcServerTest, NeedsTheKey) {
  key_ = "Bearer k";
  serve(says("x"));
  EXPECT_EQ(generate(prompt("a")).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  for (const bool with_key : {false, true}) {
    grpc::ClientContext context;
    if (with_key) context.AddMetadata("authorization", key_);
    v1::ListModelsResponse reply;
    const grpc::Status status = stub_->ListModels(&context, {}, &reply);
    EXPECT_EQ(status.ok(), with_key);
    EXPECT_EQ(reply.models_size(), with_key ? 2 : 0);
  }
}

TEST_F(GrpcServerTest, StoppingEndsWhatRuns) {
  serve([](const Request&, assay::testing::ScriptedStream& stream) { stream.push(token_event(0, 'a')); });
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, prompt("abc"));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server_->stop();
  EXPECT_EQ(server_->active_calls(), 0);
  EXPECT_EQ(fixture_->engine->cancelled, 1);
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(GrpcServerTest, ATakenPortIsAnError) {
  serve(says("x"));
  ServerOptions options;
  options.port = server_->port();
  const auto second = Server::start(
      options, lifecycle_, {[](std::string_view) { return absl::OkStatus(); }, [](const CallRecord&) {}});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), ::testing::HasSubstr("--grpc-port"));
}

TEST_F(GrpcServerTest, LargeMessagesAreRefused) {
  ServerOptions options;
  options.max_message_bytes = 1000;
  serve(says("x"), options);
  EXPECT_EQ(generate(prompt(std::string(2000, 'x'))).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(generate(prompt("x")).ok());
}

// Two layers of three heads; each head knows its number.
MeterSnapshot numbered_meters() {
  MeterSnapshot snapshot;
  snapshot.num_layers = 2;
  snapshot.num_heads = 3;
  snapshot.heads.resize(6);
  for (int64_t i = 0; i < 6; ++i) {
    HeadSnapshot& head = snapshot.heads[i];
    head.cells[0] = {.metered = 100 + i, .over_tau = 7, .saturated = 2, .overflow = 1, .tv_sum = 1.5, .value_sum = 0.5};
    head.cells[1] = {.metered = 10 + i};
    head.worst = 0.25;
    head.recent_worst = 0.125;
  }
  return snapshot;
}

class WatchTest : public GrpcServerTest {
 protected:
  void serve_meters() {
    serve(says("x"));
    fixture_->engine->pool_.pool = "certified";
    fixture_->engine->meters_value = numbered_meters();
  }

  using Reader = std::unique_ptr<grpc::ClientReader<v1::MeterSnapshot>>;
  Reader watch(grpc::ClientContext& context, const v1::WatchMetersRequest& request = {}) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return stub_->WatchMeters(&context, request);
  }

  grpc::Status refusal(const v1::WatchMetersRequest& request = {}) {
    grpc::ClientContext context;
    const Reader reader = watch(context, request);
    v1::MeterSnapshot message;
    EXPECT_FALSE(reader->Read(&message));
    return reader->Finish();
  }
};

TEST_F(WatchTest, SendsEveryHeadAsOftenAsAskedFor) {
  serve_meters();
  v1::WatchMetersRequest request;
  request.set_interval_s(0.5);
  request.set_max_snapshots(3);
  grpc::ClientContext context;
  const auto start = std::chrono::steady_clock::now();
  const Reader reader = watch(context, request);
  std::vector<v1::MeterSnapshot> seen;
  for (v1::MeterSnapshot message; reader->Read(&message);) seen.push_back(message);
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(950));
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_GT(seen[2].time_s(), seen[0].time_s() + 0.9);
  ASSERT_EQ(seen[0].heads_size(), 6);
  EXPECT_EQ(seen[0].pool(), "certified");
  const v1::HeadMeter& head = seen[0].heads(4);
  EXPECT_EQ(head.layer(), 1);
  EXPECT_EQ(head.head(), 1);
  EXPECT_EQ(head.decode().metered(), 104);
  EXPECT_EQ(head.decode().overflow(), 1);
  EXPECT_EQ(head.decode().tv_sum(), 1.5);
  EXPECT_EQ(head.prefill().metered(), 14);
  EXPECT_EQ(head.worst(), 0.25);
  EXPECT_EQ(head.recent_worst(), 0.125);
  ASSERT_TRUE(eventually([&] { return records().size() == 1; }));
  EXPECT_EQ(records()[0].method, "WatchMeters");
  EXPECT_EQ(records()[0].fields, "snapshots=3");
}

TEST_F(WatchTest, BeforeTheFirstStepEveryHeadIsThereWithNothingCounted) {
  serve_meters();
  fixture_->engine->meters_value = {};
  v1::WatchMetersRequest request;
  request.set_max_snapshots(1);
  grpc::ClientContext context;
  const Reader reader = watch(context, request);
  v1::MeterSnapshot message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(message.num_layers(), 2);
  ASSERT_EQ(message.heads_size(), 6);
  EXPECT_EQ(message.heads(5).layer(), 1);
  EXPECT_EQ(message.heads(5).decode().metered(), 0);
}

TEST_F(WatchTest, SaysWhyThereIsNothingToWatch) {
  serve_meters();
  v1::WatchMetersRequest request;
  request.set_interval_s(0.1);
  EXPECT_THAT(refusal(request).error_message(), ::testing::HasSubstr("interval_s must be from 0.5 to 3600, got 0.1"));
  request.set_interval_s(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_interval_s(1.0);
  request.set_max_snapshots(0);
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_max_snapshots(1);
  request.set_model("other");
  EXPECT_EQ(refusal(request).error_code(), grpc::StatusCode::NOT_FOUND);
  fixture_->engine->config_.kv_telemetry = "off";
  EXPECT_EQ(refusal().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  fixture_->engine->config_.kv_telemetry = "heads";
  fixture_->engine->pool_.pool = "exact";
  EXPECT_THAT(refusal().error_message(), ::testing::HasSubstr("the exact pool has no meter"));
  key_ = "Bearer k";
  EXPECT_EQ(refusal().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(WatchTest, AreBoundedAndGoWhenTheClientGoes) {
  serve_meters();
  std::vector<std::pair<std::unique_ptr<grpc::ClientContext>, Reader>> watches;
  v1::MeterSnapshot message;
  for (int i = 0; i < 16; ++i) {
    watches.emplace_back(std::make_unique<grpc::ClientContext>(), nullptr);
    watches.back().second = watch(*watches.back().first);
    ASSERT_TRUE(watches.back().second->Read(&message));
  }
  EXPECT_EQ(refusal().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(server_->active_calls(), 0);  // nobody waits for watchers
  watches[3].first->TryCancel();
  EXPECT_EQ(watches[3].second->Finish().error_code(), grpc::StatusCode::CANCELLED);
  v1::WatchMetersRequest once;
  once.set_max_snapshots(1);
  EXPECT_TRUE(eventually([&] {
    grpc::ClientContext context;
    const Reader reader = watch(context, once);
    return reader->Read(&message) && reader->Finish().ok();
  }));
  for (auto& [context, reader] : watches) context->TryCancel();
  EXPECT_TRUE(eventually([&] { return records().size() >= 18; }));
}

TEST_F(WatchTest, EndWithTheServer) {
  serve_meters();
  grpc::ClientContext drained, stopped;
  v1::WatchMetersRequest slow;
  slow.set_interval_s(3600);
  const Reader first = watch(drained, slow);
  v1::MeterSnapshot message;
  ASSERT_TRUE(first->Read(&message));
  lifecycle_.drain();
  EXPECT_FALSE(first->Read(&message));
  EXPECT_EQ(first->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server_->stop();
}

}  // namespace
}  // namespace assay::rpc
