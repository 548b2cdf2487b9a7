#include "server/grpc/server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "assay/v1/inference.grpc.pb.h"
#include "server/grpc/call.h"
#include "server/grpc/generate_call.h"
#include "server/grpc/reply.h"
#include "server/grpc/request.h"
#include "server/grpc/watch_call.h"

namespace assay::rpc {
namespace {

constexpr int kMinPingIntervalMs = 5'000;   // clients may ping every 10 s with a margin
constexpr int kKeepaliveTimeMs = 60'000;    // the server's own pings find clients that vanished without a word
constexpr int kKeepaliveTimeoutMs = 20'000;
constexpr int kMaxSyncThreads = 8;          // reflection is the one synchronous service

absl::Status run_tokenize(TextService& service, const v1::TokenizeRequest& message, v1::TokenizeResponse& reply) {
  absl::StatusOr<TokenizeRequest> request = parse_tokenize(message);
  if (!request.ok()) return request.status();
  if (absl::Status status = service.check_model(message.model()); !status.ok()) return status;
  absl::StatusOr<TokenizeResult> result = service.tokenize(*request);
  if (!result.ok()) return result.status();
  reply.mutable_tokens()->Add(result->tokens.begin(), result->tokens.end());
  reply.set_count(static_cast<int32_t>(result->tokens.size()));
  reply.set_max_model_len(service.engine().config().max_model_len);
  return absl::OkStatus();
}

absl::Status run_detokenize(TextService& service, const v1::DetokenizeRequest& message, v1::DetokenizeResponse& reply) {
  if (absl::Status status = service.check_model(message.model()); !status.ok()) return status;
  absl::StatusOr<std::string> text =
      service.detokenize({message.tokens().begin(), message.tokens().end()}, message.skip_special_tokens());
  if (!text.ok()) return text.status();
  reply.set_prompt(*std::move(text));
  return absl::OkStatus();
}

absl::Status run_list_models(TextService& service, const v1::ListModelsRequest&, v1::ListModelsResponse& reply) {
  for (const std::string& name : service.model_names()) {
    v1::Model& model = *reply.add_models();
    model.set_id(name);
    model.set_max_model_len(service.engine().config().max_model_len);
    model.set_root(service.model_names().front());
  }
  return absl::OkStatus();
}

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(CallSite& site) : site_(site) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override {
    return GenerateCall::start(site_, *context, *request);
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override {
    return answer("Tokenize", context, request, response, run_tokenize);
  }
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    return answer("Detokenize", context, request, response, run_detokenize);
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override {
    return answer("ListModels", context, request, response, run_list_models);
  }

  grpc::ServerWriteReactor<v1::MeterSnapshot>* WatchMeters(grpc::CallbackServerContext* context,
                                                           const v1::WatchMetersRequest* request) override {
    return WatchCall::start(site_, *context, *request);
  }

 private:
  template <class Request, class Response>
  grpc::ServerUnaryReactor* answer(const char* method, grpc::CallbackServerContext* context, const Request* request,
                                   Response* response, absl::Status (*run)(TextService&, const Request&, Response&)) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    auto log = std::make_shared<CallLog>(site_, *context, method);
    site_.worker_for(request->ByteSizeLong()).post([=, this] {
      absl::Status status = site_.authorize(*context);
      absl::StatusOr<std::shared_ptr<TextService>> service = site_.lifecycle.alive();
      if (status.ok()) status = service.status();
      if (status.ok()) status = run(**service, *request, *response);
      log->finish(status);
      reactor->Finish(grpc_status(status));
    });
    return reactor;
  }

  CallSite& site_;
};

// gRPC's own log lines go where ours go.
void log_of_grpc(gpr_log_func_args* entry) {
  if (entry->severity == GPR_LOG_SEVERITY_ERROR) {
    spdlog::warn("grpc message={:?}", entry->message);
  } else {
    spdlog::debug("grpc message={:?}", entry->message);
  }
}

absl::StatusOr<std::string> read_pem(const char* flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(fmt::format("--{} {}: cannot be read", flag, path));
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> make_credentials(const ServerOptions& options) {
  if (options.certificate_file.empty()) return grpc::InsecureServerCredentials();
  absl::StatusOr<std::string> certificate = read_pem("ssl-certfile", options.certificate_file);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = read_pem("ssl-keyfile", options.key_file);
  if (!key.ok()) return key.status();
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({*std::move(key), *std::move(certificate)});
  return grpc::SslServerCredentials(tls);
}

std::string address_of(const ServerOptions& options) {
  const bool bare_ipv6 = options.host.find(':') != std::string::npos && options.host.front() != '[';
  return fmt::format(fmt::runtime(bare_ipv6 ? "[{}]:{}" : "{}:{}"), options.host, options.port);
}

void set_limits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  // A few kilobytes of gzip can be gigabytes of message, and the limit is checked before and after, not while unpacking.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // or two servers would share a port in silence
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  grpc::ResourceQuota quota("assay");
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Lifecycle& lifecycle, ServerHooks hooks) : site_(lifecycle, std::move(hooks)), service_(site_) {}
  ~Impl() { stop(); }

  absl::Status listen(const ServerOptions& options) {
    gpr_set_log_function(log_of_grpc);
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials = make_credentials(options);
    if (!credentials.ok()) return credentials.status();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    set_limits(options, builder);
    builder.AddListeningPort(address_of(options), *credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(fmt::format("cannot listen on {} port {} for gRPC: it is taken, or not an address of this "
                                                "machine (--grpc-port chooses another port, 0 turns gRPC off)",
                                                options.host, options.port));
    }
    refresh_health();
    return absl::OkStatus();
  }

  void refresh_health() {
    const bool serving = site_.lifecycle.accepting().ok();
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(v1::Inference::service_full_name(), serving);
    health->SetServingStatus("", serving);
  }

  void stop() {
    if (server_ == nullptr || stopped_.exchange(true)) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  int port() const { return port_; }
  int active_calls() const { return std::max(0, site_.active_calls - site_.watchers); }

 private:
  CallSite site_;
  InferenceService service_;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
  std::unique_ptr<grpc::Server> server_;  // destroyed first
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::start(const ServerOptions& options, const Lifecycle& lifecycle,
                                                      ServerHooks hooks) {
  auto impl = std::make_unique<Impl>(lifecycle, std::move(hooks));
  if (absl::Status status = impl->listen(options); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return static_cast<uint16_t>(impl_->port()); }
int Server::active_calls() const { return impl_->active_calls(); }
void Server::refresh_health() { impl_->refresh_health(); }
void Server::stop() { impl_->stop(); }

}  // namespace assay::rpc
