#include "engine/core/engine_impl.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "engine/core/seeds.h"
#include "fmt/format.h"

namespace assay {
namespace {

constexpr double kLargestThreshold = 1e6;  // of tau: from 1 up it only ranks

uint64_t system_random() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

void resolve(EngineConfig& config, const Executor& executor) {
  if (config.max_model_len == 0) config.max_model_len = executor.model().max_model_len;
  if (config.max_num_batched_tokens == 0) config.max_num_batched_tokens = config.device == "cuda" ? 8192 : 2048;
}

absl::Status check_meter(const EngineConfig& config) {
  const auto one_of = [](const char* name, const std::string& value, std::initializer_list<const char*> choices) {
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("{} must be one of {}, got \"{}\"", name, fmt::join(choices, ", "), value));
  };
  const auto above_zero = [](const char* name, double value, double most) {
    if (value > 0.0 && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("{} must be above 0 and at most {}, got {}", name, most, value));
  };
  absl::Status status;
  status.Update(one_of("kv_radius", config.kv_radius, {"witness", "dither", "both"}));
  status.Update(one_of("kv_bound", config.kv_bound, {"best", "f", "e-form", "tanh"}));
  status.Update(one_of("kv_prefill_meter", config.kv_prefill_meter, {"off", "sample", "all"}));
  status.Update(one_of("kv_telemetry", config.kv_telemetry, {"off", "summary", "heads"}));
  status.Update(one_of("kv_dither_stream", config.kv_dither_stream, {"periodic", "per-slot"}));
  status.Update(above_zero("kv_tau", config.kv_tau, kLargestThreshold));
  status.Update(above_zero("kv_tau_v", config.kv_tau_v, kLargestThreshold));
  status.Update(above_zero("kv_delta", config.kv_delta, 1.0));
  status.Update(one_of("kv_gate", config.kv_gate, {"off", "observe", "repair"}));
  status.Update(one_of("kv_backing", config.kv_backing, {"host", "none"}));
  if (!(config.kv_audit_rate >= 0.0 && config.kv_audit_rate <= 1.0)) {
    status.Update(absl::InvalidArgumentError(fmt::format("kv_audit_rate must be from 0 to 1, got {}", config.kv_audit_rate)));
  }
  return status;
}

// What reads exact rows needs some to be kept.
absl::Status check_backing(const EngineConfig& config, const PoolInfo& pool) {
  if (!pool.has_meter() || config.kv_backing != "none") return absl::OkStatus();
  if (config.kv_gate == "repair") {
    return absl::InvalidArgumentError(
        "kv_gate repair reads exact rows, and kv_backing none keeps none; use kv_backing host, or kv_gate observe");
  }
  if (config.kv_exact_layers.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("kv_exact_layers reads exact rows, and kv_backing none keeps none; use kv_backing host");
}

absl::Status check_config(const EngineConfig& config, const PoolInfo& pool) {
  const auto at_least_one = [](const char* name, int64_t value) {
    if (value >= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("{} must be at least 1, got {}", name, value));
  };
  absl::Status status;
  status.Update(at_least_one("max_model_len", config.max_model_len));
  status.Update(at_least_one("max_num_seqs", config.max_num_seqs));
  status.Update(at_least_one("max_num_batched_tokens", config.max_num_batched_tokens));
  status.Update(at_least_one("max_num_queued_reqs", config.max_num_queued_reqs));
  status.Update(at_least_one("block_size", pool.block_size));
  status.Update(check_meter(config));
  status.Update(check_backing(config, pool));
  status.Update(at_least_one("the number of KV cache pages", pool.num_pages));
  if (config.max_logprobs < 0) status.Update(absl::InvalidArgumentError("max_logprobs must not be negative"));
  if (pool.num_pages > std::numeric_limits<PageId>::max()) {
    status.Update(absl::InvalidArgumentError(fmt::format("the KV cache has too many pages: {}", pool.num_pages)));
  }
  return status;
}

RequestLimits request_limits(const EngineConfig& config, const Executor& executor) {
  return {.vocab_size = executor.model().vocab_size,
          .max_model_len = config.max_model_len,
          .max_kv_tokens = executor.pool().num_pages * executor.pool().block_size,
          .max_logprobs = config.max_logprobs,
          .max_num_queued_reqs = config.max_num_queued_reqs,
          .eos_token_ids = executor.model().eos_token_ids};
}

KvCacheOptions cache_options(const EngineConfig& config, const PoolInfo& pool, const EngineOptions& options) {
  const std::string domain = fmt::format("pool={} dtype={} block_size={} bytes_per_token_head={}", pool.pool,
                                         pool.dtype, pool.block_size, pool.bytes_per_token_head);
  const SipKey key = options.prefix_hash_key ? *options.prefix_hash_key : SipKey{system_random(), system_random()};
  return {.num_pages = static_cast<int32_t>(pool.num_pages),
          .enable_prefix_caching = config.enable_prefix_caching,
          .prefix = {
              .domain = domain, .block_size = pool.block_size, .hash_key = key, .hash_bits = options.prefix_hash_bits}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineImpl>> EngineImpl::create(EngineConfig config, std::unique_ptr<Executor> executor,
                                                               EngineOptions options) {
  resolve(config, *executor);
  if (absl::Status status = check_config(config, executor->pool()); !status.ok()) return status;
  const bool start_thread = options.start_thread;
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(config), std::move(executor), std::move(options)));
  if (start_thread) engine->thread_ = std::thread(&EngineImpl::run, engine.get());
  return engine;
}

EngineImpl::EngineImpl(EngineConfig config, std::unique_ptr<Executor> executor, EngineOptions options)
    : config_(std::move(config)),
      now_(options.now),
      limits_(request_limits(config_, *executor)),
      rules_(certificate_rules(config_, executor->model(), executor->pool())),
      seed_(config_.seed ? *config_.seed : system_random()),
      inbox_(std::make_shared<Inbox>(config_.max_num_queued_reqs)),
      // The executor's pool must be read before the executor moves: members of one call are not ordered.
      loop_([&] {
        KvCacheOptions cache = cache_options(config_, executor->pool(), options);
        return EngineLoop(std::move(executor), inbox_, {config_.max_num_seqs, config_.max_num_batched_tokens},
                          std::move(cache), rules_, config_.kv_telemetry != "off", now_);
      }()) {}

EngineImpl::~EngineImpl() {
  inbox_->refuse(absl::UnavailableError("the engine is shutting down"));
  inbox_->close();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    loop_.shut_down();
  }
}

absl::StatusOr<std::unique_ptr<Stream>> EngineImpl::submit(Request request) {
  const TimePoint now = now_();
  if (absl::Status status = check_and_resolve(request, limits_, now); !status.ok()) return status;
  if (absl::Status status = check_certificate(request.certificate, rules_); !status.ok()) return status;
  const int64_t stream_id = next_stream_id_.fetch_add(1);
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : derived_seed(seed_, stream_id);
  auto mailbox = std::make_shared<Mailbox>(request.num_sequences);
  absl::Status status = inbox_->offer({.stream_id = stream_id,
                                       .request = std::make_shared<const Request>(std::move(request)),
                                       .mailbox = mailbox,
                                       .seed = seed,
                                       .submitted = now});
  if (!status.ok()) return status;
  return std::make_unique<MailboxStream>(stream_id, std::move(mailbox), inbox_);
}

void EngineImpl::drain() {
  inbox_->refuse(absl::UnavailableError("the server is shutting down and takes no new requests"));
}

void EngineImpl::abort_all() { inbox_->post({.kind = StreamCommand::kAbortAll}); }

void EngineImpl::run() {
  while (!inbox_->closed() && (!loop_.idle() || inbox_->wait())) loop_.step();
  loop_.shut_down();
}

}  // namespace assay
