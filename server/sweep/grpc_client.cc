#include "server/sweep/grpc_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "absl/status/status.h"
#include "assay/v1/inference.grpc.pb.h"

namespace assay::sweep {
namespace {

namespace asio = boost::asio;

Chunk to_chunk(const v1::GenerateResponse& message) {
  Chunk chunk;
  chunk.has_choice = true;
  chunk.has_text = !message.text().empty();
  chunk.token_ids = message.token_ids_size();
  chunk.finish_reason = message.finish_reason();
  if (message.has_usage()) {
    const v1::Usage& usage = message.usage();
    chunk.usage = Chunk::Usage{usage.prompt_tokens(), usage.completion_tokens(), usage.cached_tokens()};
  }
  if (message.has_certificate()) {
    const v1::Certificate& report = message.certificate();
    chunk.certificate = CertificateRecord{report.certified(), report.worst().bound(), report.decode().metered(),
                                          report.decode().certified()};
  }
  return chunk;
}

// gRPC has one code for a server that refuses and for none that answers.
bool is_unreachable(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_message().starts_with("failed to connect");
}

// Servers may split their refusals over these two, as HTTP does over 429 and 503.
bool is_because_of_load(grpc::StatusCode code) {
  return code == grpc::StatusCode::RESOURCE_EXHAUSTED || code == grpc::StatusCode::UNAVAILABLE;
}

std::string kind_of(grpc::StatusCode code) {
  return "grpc_" + absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

// One call. gRPC's threads read messages and post them; the recorder is touched by the I/O thread alone.
class GenerateRead final : public grpc::ClientReadReactor<v1::GenerateResponse>,
                           public std::enable_shared_from_this<GenerateRead> {
 public:
  GenerateRead(asio::io_context& io, const RunClock& clock, StreamRecorder& recorder)
      : io_(io), clock_(clock), recorder_(recorder), ended_(io, asio::steady_timer::time_point::max()) {}

  void start(v1::Inference::Stub& stub, const std::string& authorization, const std::string& body, double timeout_s) {
    self_ = shared_from_this();
    request_.ParseFromString(body);
    const std::chrono::duration<double> timeout(timeout_s);
    context_.set_deadline(std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&message_);
    StartCall();
  }

  // The timer is what keeps the io_context running meanwhile.
  asio::awaitable<grpc::Status> end() {
    while (!status_) co_await ended_.async_wait(asio::as_tuple(asio::use_awaitable));
    co_return *status_;
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    asio::post(io_, [call = self_, chunk = to_chunk(message_), now_s = clock_.now_s()] {
      call->recorder_.on_chunk(chunk, now_s);
    });
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    asio::post(io_, [call = std::move(self_), status] {
      call->status_ = status;
      call->ended_.cancel();
    });
  }

 private:
  asio::io_context& io_;
  const RunClock& clock_;
  StreamRecorder& recorder_;
  asio::steady_timer ended_;
  std::shared_ptr<GenerateRead> self_;  // until OnDone
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse message_;
  std::optional<grpc::Status> status_;
};

}  // namespace

struct GrpcClient::Channel {
  std::unique_ptr<v1::Inference::Stub> stub;
  std::string authorization;  // empty: none
};

GrpcClient::GrpcClient(asio::io_context& io, const std::string& address, bool tls, const std::string& api_key,
                       const RunClock& clock)
    : io_(io), clock_(clock), channel_(std::make_unique<Channel>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = tls ? grpc::SslCredentials({}) : grpc::InsecureChannelCredentials();
  channel_->stub = v1::Inference::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
  if (!api_key.empty()) channel_->authorization = "Bearer " + api_key;
}

GrpcClient::~GrpcClient() = default;

asio::awaitable<TransferEnd> GrpcClient::send(const LoadRequest& request, double timeout_s, StreamRecorder& recorder) {
  const auto call = std::make_shared<GenerateRead>(io_, clock_, recorder);
  call->start(*channel_->stub, channel_->authorization, request.body, timeout_s);
  const grpc::Status status = co_await call->end();
  TransferEnd end;
  if (status.ok()) {
    Chunk done;
    done.kind = Chunk::Kind::kDone;
    recorder.on_chunk(done, clock_.now_s());
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    end.error = TransferError::kTimeout;
  } else if (is_unreachable(status)) {
    end.error = TransferError::kConnectFailed;
    end.detail = status.error_message();
  } else {
    recorder.refuse(kind_of(status.error_code()), status.error_message(), is_because_of_load(status.error_code()));
  }
  co_return end;
}

}  // namespace assay::sweep
