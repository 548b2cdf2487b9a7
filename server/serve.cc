// `assay serve`: reads the configuration, puts the parts together, waits for the end.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/api/engine.h"
#include "server/commands.h"
#include "server/config/load.h"
#include "server/grpc/server.h"
#include "server/http/access.h"
#include "server/http/routes.h"
#include "server/http/server.h"
#include "server/ops/live_page.h"
#include "server/ops/log.h"
#include "server/ops/metrics.h"
#include "server/service/calibration_text.h"
#include "server/service/lifecycle.h"
#include "server/service/status.h"
#include "server/signals.h"
#include "server/text/chat_template.h"
#include "server/text/tokenizer.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{100};
constexpr milliseconds kAbortedReplies{1000};  // after --shutdown-timeout: to tell the clients whose requests were cut
constexpr milliseconds kRedBeforeExit{3000};  // how long probes can see a dead engine before the process ends

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<std::string> model_names(const ServeConfig& config) {
  if (!config.served_model_names.empty()) return config.served_model_names;
  std::filesystem::path path = std::filesystem::path(config.model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const std::string name = std::filesystem::absolute(path).filename().string();
  return {name.empty() ? config.model : name};
}

// Each connection is a file descriptor.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The configuration with the defaults that the engine worked out.
ServeConfig resolved_config(const ServeConfig& config, const EngineConfig& engine) {
  ServeConfig resolved = config;
  resolved.device = engine.device;
  resolved.threads = engine.threads;
  resolved.kv_cache_dtype = engine.kv_cache_dtype;
  resolved.kv_pool = engine.kv_pool;
  resolved.kv_radius = engine.kv_radius;
  resolved.kv_balance = engine.kv_balance;
  resolved.kv_rotation = engine.kv_rotation;
  resolved.max_model_len = engine.max_model_len;
  resolved.max_num_batched_tokens = engine.max_num_batched_tokens;
  resolved.kv_cache_memory.bytes = engine.kv_cache_memory_bytes;
  resolved.kv_gate = engine.kv_gate;
  resolved.kv_backing = engine.kv_backing;
  resolved.kv_backing_memory.bytes = engine.kv_backing_memory_bytes;
  if (engine.kv_repair_cache_memory_bytes) resolved.kv_repair_cache_memory = ByteSize{*engine.kv_repair_cache_memory_bytes};
  return resolved;
}

Json model_json(const ModelInfo& model) {
  return {{"architecture", model.architecture}, {"dtype", model.dtype}, {"device", model.device},
          {"parameters", model.num_parameters}, {"weight_bytes", model.weight_bytes}, {"vocab_size", model.vocab_size},
          {"context_tokens", model.max_model_len}, {"layers", model.num_layers}, {"heads", model.num_heads},
          {"kv_heads", model.num_kv_heads}, {"head_dim", model.head_dim}, {"hidden_size", model.hidden_size},
          {"eos_token_ids", model.eos_token_ids}};
}

Json cache_json(const PoolInfo& pool) {
  return {{"pool", pool.pool}, {"dtype", pool.dtype}, {"block_size", pool.block_size}, {"pages", pool.num_pages},
          {"bytes_per_page", pool.bytes_per_page}, {"bytes_per_token_head", pool.bytes_per_token_head}};
}

class ServeCommand {
 public:
  explicit ServeCommand(ServeConfig config) : config_(std::move(config)), names_(model_names(config_)), metrics_(names_.front()) {}

  int run() {
    operations_.version = ASSAY_VERSION;
    operations_.live_page = live_page();
    operations_.metrics = [this](bool openmetrics) { return metrics_.text(openmetrics); };
    operations_.server_info = [this] { return server_info(); };
    operations_.metrics_auth = config_.metrics_auth;
    if (absl::Status status = start_http(); !status.ok()) return failed(status);
    if (absl::Status status = start_grpc(); !status.ok()) return failed(status);
    if (absl::Status status = load_model(); !status.ok()) return failed(status);
    refresh_grpc_health();
    signals_.accept_orderly_end();
    log_info(fmt::format("ready url={}://{}:{} model={}", config_.ssl_certfile.empty() ? "http" : "https", config_.host,
                         server_->port(), names_.front()));
    const bool orderly = wait_for_end();
    stop();
    return orderly ? 0 : 1;
  }

 private:
  int failed(const absl::Status& status) {
    log_error(std::string(status.message()));
    return 1;
  }

  absl::Status start_http() {
    const auto on_request = [this](const http::AccessRecord& record) { record_request(record); };
    std::vector<http::Route> routes = http::openai_routes(lifecycle_);
    for (const std::vector<http::Route>& more :
         {http::tokenizer_routes(lifecycle_), http::health_routes(lifecycle_, operations_), http::information_routes(operations_)}) {
      routes.insert(routes.end(), more.begin(), more.end());
    }
    http::ServerOptions options;
    options.host = config_.host;
    options.port = static_cast<uint16_t>(config_.port);
    options.certificate_file = config_.ssl_certfile;
    options.key_file = config_.ssl_keyfile;
    options.limits.max_body_bytes = static_cast<uint64_t>(config_.max_body_bytes.bytes);
    options.limits.max_connections = config_.max_connections;
    auto server = http::Server::start(options, http::Site(std::move(routes), config_.api_keys, config_.allowed_origins, on_request));
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    log_info(fmt::format("listening host={} port={} loading={}", config_.host, server_->port(), config_.model));
    if (config_.metrics_port == 0) return absl::OkStatus();
    options.port = static_cast<uint16_t>(config_.metrics_port);
    options.io_threads = options.worker_threads = 1;
    auto metrics_server = http::Server::start(
        options, http::Site(http::health_routes(lifecycle_, operations_), config_.api_keys, config_.allowed_origins, on_request));
    if (!metrics_server.ok()) return metrics_server.status();
    metrics_server_ = std::move(*metrics_server);
    return absl::OkStatus();
  }

  absl::Status start_grpc() {
    if (config_.grpc_port == 0) return absl::OkStatus();
    rpc::ServerOptions options;
    options.host = config_.host;
    options.port = static_cast<uint16_t>(config_.grpc_port);
    options.certificate_file = config_.ssl_certfile;
    options.key_file = config_.ssl_keyfile;
    options.max_message_bytes = static_cast<int32_t>(std::min<int64_t>(config_.max_body_bytes.bytes, INT32_MAX));
    options.max_streams = config_.max_connections;
    rpc::ServerHooks hooks;
    hooks.authorize = [keys = http::KeyRing(config_.api_keys)](std::string_view sent) { return keys.check(sent); };
    hooks.on_call = [this](const rpc::CallRecord& record) { record_call(record); };
    auto server = rpc::Server::start(options, lifecycle_, std::move(hooks));
    if (!server.ok()) return server.status();
    grpc_server_ = std::move(*server);
    log_info(fmt::format("grpc address={}:{}", config_.host, grpc_server_->port()));
    return absl::OkStatus();
  }

  void refresh_grpc_health() {
    if (grpc_server_) grpc_server_->refresh_health();
  }

  absl::Status load_model() {
    const std::string& folder = config_.tokenizer.empty() ? config_.model : config_.tokenizer;
    absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(folder);
    if (!tokenizer.ok()) return tokenizer.status();
    TextServiceOptions options;
    options.served_model_names = names_;
    if (config_.request_timeout.time.count() > 0) options.request_timeout = config_.request_timeout.time;
    options.chat_template_source =
        config_.chat_template.empty() ? (*tokenizer)->chat_template() : read_file(config_.chat_template);
    std::shared_ptr<const ChatTemplate> chat_template;
    if (!options.chat_template_source.empty()) {
      absl::StatusOr<std::shared_ptr<const ChatTemplate>> parsed = ChatTemplate::parse(options.chat_template_source);
      if (!parsed.ok()) {
        return absl::InvalidArgumentError("the chat template cannot be used: " + std::string(parsed.status().message()) +
                                          " (another one: --chat-template FILE)");
      }
      chat_template = std::move(*parsed);
    }
    EngineConfig wanted = engine_config(config_);
    if (config_.kv_pool != "exact") wanted.calibration_tokens = (*tokenizer)->encode(calibration_text(), false);
    wanted.calibration_files = EngineConfig::CalibrationFiles::kUse;
    if (config_.kv_seed) log_warning("--kv-seed is set: a known dither seed is for tests only");
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::create(wanted);
    if (!engine.ok()) return engine.status();
    engine_ = std::move(*engine);
    if (absl::Status status = check_vocabulary(**tokenizer, engine_->model()); !status.ok()) return status;
    const ServeConfig effective = resolved_config(config_, engine_->config());
    log_info("configuration " + config_json(effective).dump(-1, ' ', false, Json::error_handler_t::replace));
    effective_.store(std::make_shared<const ServeConfig>(effective));
    metrics_.attach_engine([engine = engine_] { return engine->stats(); }, [engine = engine_] { return engine->meters(); },
                           [engine = engine_] { return engine->gate(); }, engine_->pool(), engine_->config());
    lifecycle_.loaded(std::make_shared<TextService>(engine_, *tokenizer, chat_template, std::move(options), &metrics_));
    return absl::OkStatus();
  }

  // True: asked to end. False: the engine has died.
  bool wait_for_end() {
    while (!signals_.wait(kPoll)) {
      if (!engine_->stats().healthy) {
        refresh_grpc_health();
        log_error("the engine has failed; health is red, the process ends soon");
        std::this_thread::sleep_for(kRedBeforeExit);
        return false;
      }
    }
    return true;
  }

  void stop() {
    log_info(fmt::format("draining requests={} at_most_s={:.1f}", active_requests(),
                         static_cast<double>(config_.shutdown_timeout.time.count()) / 1000.0));
    lifecycle_.drain();
    refresh_grpc_health();
    server_->close_after_replies();
    wait_for_replies(config_.shutdown_timeout.time);
    const int left = active_requests();
    if (left > 0) {
      engine_->abort_all();
      wait_for_replies(kAbortedReplies);
    }
    server_->stop();
    if (grpc_server_) grpc_server_->stop();
    if (metrics_server_) metrics_server_->stop();
    log_info(fmt::format("stopped unfinished_requests={}", left));
  }

  int active_requests() const {
    return server_->active_requests() + (grpc_server_ ? grpc_server_->active_calls() : 0);
  }

  void record_call(const rpc::CallRecord& record) {
    metrics_.grpc_call({record.method, record.code, record.seconds});
    std::string line = fmt::format("call method={} code={} seconds={:.4f} {}", record.method, record.code, record.seconds,
                                   log_field("peer", record.peer));
    if (!record.request_id.empty()) line += " " + log_field("id", record.request_id);
    if (!record.fields.empty()) line += " " + record.fields;
    if (!record.message.empty()) line += " " + log_field("error", record.message);
    log_info(line);
  }

  void wait_for_replies(milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (active_requests() > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kPoll / 5);
  }

  void record_request(const http::AccessRecord& record) {
    metrics_.http_request({record.method, record.route, record.status, record.seconds});
    std::string line = fmt::format("request {} {} route={} status={} seconds={:.4f} bytes={} peer={}", log_field("id", record.request_id),
                                   log_field("method", record.method), record.route, record.status, record.seconds,
                                   record.reply_bytes, record.peer);
    if (!record.fields.empty()) line += " " + record.fields;
    if (!record.message.empty()) line += " " + log_field("error", record.message);
    const bool watching = record.method == "GET" && record.status < 400;  // probes, scrapes, the live page
    if (record.status >= 500) {
      log_warning(line);
    } else if (watching) {
      log_debug(line);
    } else {
      log_info(line);
    }
  }

  Json server_info() const {
    Json info = {{"version", ASSAY_VERSION}, {"models", names_}};
    const std::shared_ptr<const ServeConfig> effective = effective_.load();
    if (effective == nullptr) {
      info["status"] = "loading";
      info["config"] = config_json(config_);
      return info;
    }
    const absl::StatusOr<std::shared_ptr<TextService>> service = lifecycle_.accepting();
    info["status"] = service.ok() ? "ready" : std::string(service.status().message());
    info["model"] = model_json(engine_->model());
    info["cache"] = cache_json(engine_->pool());
    info["config"] = config_json(*effective);
    return info;
  }

  ServeConfig config_;
  std::vector<std::string> names_;
  SignalWatch signals_;
  Metrics metrics_;
  Lifecycle lifecycle_;
  http::Operations operations_;
  std::shared_ptr<Engine> engine_;
  std::atomic<std::shared_ptr<const ServeConfig>> effective_;  // set last: then engine_ may be read from any thread
  std::unique_ptr<http::Server> server_;                       // destroyed first
  std::unique_ptr<http::Server> metrics_server_;
  std::unique_ptr<rpc::Server> grpc_server_;
};

}  // namespace

int run_serve(int argc, char** argv) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  absl::StatusOr<LoadedConfig> loaded = load_config(std::vector<std::string>(argv + 1, argv + argc), environment);
  absl::Status status = loaded.status();
  if (status.ok() && loaded->help) {
    std::fputs(serve_help().c_str(), stdout);
    return 0;
  }
  if (status.ok()) status = check_config(loaded->config);
  if (!status.ok()) {
    std::fprintf(stderr, "assay serve: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  start_log(loaded->config.log_level);
  raise_descriptor_limit();
  return ServeCommand(std::move(loaded->config)).run();
}

}  // namespace assay
