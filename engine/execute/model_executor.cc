#include "engine/execute/model_executor.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/execute/cell_copier.h"
#include "engine/execute/machine.h"
#include "engine/execute/pool_setup.h"
#include "engine/execute/step_key.h"
#include "engine/weights/checkpoint.h"
#include "engine/weights/dummy_weights.h"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

// Logits are made for this many rows at a time at most: 64 MiB of them (512 MiB on a GPU), at least 16 rows.
int32_t logit_rows(const ModelConfig& model, const EngineConfig& config) {
  const int64_t budget = int64_t{config.device == "cuda" ? 512 : 64} << 20;
  const int32_t fit = static_cast<int32_t>(std::min<int64_t>(budget / (int64_t{4} * model.vocab_size), 256));
  return std::min(config.max_num_batched_tokens, std::max(fit, 16));
}

absl::Status not_finite(int32_t position) {
  return absl::InternalError("the model's output at position " + std::to_string(position) +
                             " cannot be sampled: a logit is not finite, or no token is allowed");
}

void add_token_ids(const std::vector<int32_t>& ids, std::vector<int32_t>& to) {
  for (int32_t id : ids) {
    if (std::find(to.begin(), to.end(), id) == to.end()) to.push_back(id);
  }
}

TokenLogprobs to_token_logprobs(LogprobsRow&& row) {
  return {row.token, row.logprob, row.rank, std::move(row.top)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> ModelExecutor::create(EngineConfig& config) {
  auto executor = std::make_unique<ModelExecutor>();
  absl::StatusOr<ModelConfig> model = load_model_config(config.model_dir);
  if (!model.ok()) return model.status();
  executor->config_ = *std::move(model);
  const absl::StatusOr<GenerationDefaults> defaults = load_generation_defaults(config.model_dir);
  if (!defaults.ok()) return defaults.status();
  const bool max_model_len_given = config.max_model_len != 0;
  Machine machine = this_machine();
  if (absl::Status status = resolve_compute(executor->config_, machine, config); !status.ok()) return status;
  executor->comm_ = make_single_communicator();
  if (absl::Status status = executor->load_weights(config); !status.ok()) return status;
  if (absl::Status status = executor->start_device(config); !status.ok()) return status;
  const DType stored = executor->weights_.layers[0].qkv[0].weight.dtype;
  if (config.device == "cuda") {
    const int32_t rows = logit_rows(executor->config_, config);
    machine.available_memory_bytes = bytes_for_cache(executor->config_, config, rows);
  }
  const absl::StatusOr<CachePlan> cache =
      resolve_cache(executor->config_, stored, machine, max_model_len_given, config);
  if (!cache.ok()) return cache.status();
  if (absl::Status status = executor->build(config, *cache); !status.ok()) return status;
  executor->describe(config, *cache, *defaults);
  return executor;
}

absl::Status ModelExecutor::load_weights(const EngineConfig& config) {
  if (config.dummy_weights) {
    source_ = std::make_unique<DummyWeights>(config_.declared_dtype.value_or(DType::kBF16), config.seed.value_or(0));
  } else {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::open(config.model_dir);
    if (!checkpoint.ok()) return checkpoint.status();
    source_ = *std::move(checkpoint);
  }
  absl::StatusOr<DecoderWeights> weights = load_decoder_weights(config_, *source_, {comm_->rank(), comm_->size()});
  if (!weights.ok()) return weights.status();
  weights_ = *std::move(weights);
  const DType stored = weights_.layers[0].qkv[0].weight.dtype;
  if (config_.declared_dtype && *config_.declared_dtype != stored) {
    spdlog::warn("{}: the weights are stored as {}, config.json says {}; they are used as stored", config.model_dir,
                 dtype_name(stored), dtype_name(*config_.declared_dtype));
  }
  return absl::OkStatus();
}

absl::Status ModelExecutor::start_device(const EngineConfig& config) {
  absl::StatusOr<Backend> backend = make_backend(config, weights_.layers[0].qkv[0].weight.dtype);
  if (!backend.ok()) return backend.status();
  device_ = std::move(backend->device);
  ops_ = std::move(backend->ops);
  if (config.device == "cpu") return absl::OkStatus();  // weights are used where they are
  absl::StatusOr<Buffer> uploaded = upload_weights(weights_, ops_->activation_dtype(), *device_);
  if (!uploaded.ok()) return uploaded.status();
  device_weights_ = *std::move(uploaded);
  source_.reset();
  return absl::OkStatus();
}

absl::Status ModelExecutor::build(EngineConfig& config, const CachePlan& cache) {
  RopeFrequencies rope =
      rope_frequencies(config_.rope, config_.head_dim, config_.max_position_embeddings, config.max_model_len);
  auto decoder =
      DecoderModel::create(config_, weights_, std::move(rope), *device_, *ops_, *comm_, config.max_num_batched_tokens,
                           logit_rows(config_, config));
  if (!decoder.ok()) return decoder.status();
  decoder_ = *std::move(decoder);
  const absl::StatusOr<PoolTransform> transform = make_pool_transform(config, config_, cache, *decoder_, *device_);
  if (!transform.ok()) return transform.status();
  const int64_t pool_bytes = cache.num_pages * cache.layout.bytes_per_page();
  const int64_t host_bytes = available_memory_bytes() - (config.device == "cuda" ? 0 : pool_bytes);
  const absl::StatusOr<GatePlan> behind = resolve_gate(cache, ops_->has_gate(), host_bytes, config);
  if (!behind.ok()) return behind.status();
  absl::StatusOr<KvPool> pool = KvPool::make(*device_, cache.layout, cache.num_pages, *transform, config.max_num_seqs,
                                             behind->repair_slots);
  if (!pool.ok()) return pool.status();
  filling_ = FillingPages(config.max_num_seqs);
  pool_ = *std::move(pool);
  const AttentionShape heads{config_.num_heads, config_.num_kv_heads, config_.head_dim};
  if (const std::string problem = ops_->unsupported(heads, pool_.view()); !problem.empty()) {
    return absl::InvalidArgumentError("device " + config.device + ": " + problem);
  }
  if (!is_compressed(cache.layout.format)) return absl::OkStatus();
  absl::StatusOr<StepMeter> meter = StepMeter::make(*device_, cache.meter, config_.num_layers, config_.num_heads);
  if (!meter.ok()) return meter.status();
  meter_ = *std::move(meter);
  absl::StatusOr<StepGate> gate = StepGate::make(*device_, config, *behind, cache.layout.shape, pool_);
  if (!gate.ok()) return gate.status();
  gate_ = *std::move(gate);
  return absl::OkStatus();
}

void ModelExecutor::describe(const EngineConfig& config, const CachePlan& cache, const GenerationDefaults& defaults) {
  ModelInfo& info = model_info_;
  info.architecture = config_.architecture;
  info.dtype = dtype_name(weights_.layers[0].qkv[0].weight.dtype);
  info.device = device_->description();
  info.num_parameters = weights_.num_parameters;
  info.weight_bytes = weights_.bytes;
  info.vocab_size = config_.vocab_size;
  info.max_model_len = config.max_model_len;
  info.num_layers = config_.num_layers;
  info.num_heads = config_.num_heads;
  info.num_kv_heads = config_.num_kv_heads;
  info.head_dim = config_.head_dim;
  info.hidden_size = config_.hidden_size;
  add_token_ids(config_.eos_token_ids, info.eos_token_ids);
  add_token_ids(defaults.eos_token_ids, info.eos_token_ids);
  info.sampling_defaults = defaults.sampling;
  const PoolLayout& layout = cache.layout;
  const int64_t tokens = int64_t{cache.num_pages} * layout.shape.page_tokens;
  PoolInfo& pool = pool_info_;
  pool.pool = layout.name;
  pool.dtype = layout.dtype;
  pool.block_size = layout.shape.page_tokens;
  pool.num_pages = cache.num_pages;
  pool.bytes_per_page = pool_.record_bytes() / cache.num_pages;
  pool.side_bytes_per_page = pool_.side_bytes() / cache.num_pages;
  pool.bytes_per_token_head =
      static_cast<int32_t>(pool_.record_bytes() / tokens / layout.shape.num_layers / layout.shape.num_kv_heads);
  pool.granularity = layout.granularity;
  pool.scale_source = layout.scale_source;
  pool.has_backing = gate_.has_backing();
}

absl::StatusOr<StepResult> ModelExecutor::execute(const StepPlan& plan) {
  const HeadJobs jobs = make_head_jobs(plan);
  const BatchLimits limits{decoder_->max_tokens(), config_.vocab_size, pool_.view().page_tokens,
                           pool_.view().num_pages};
  if (absl::Status status = batch_.stage(plan, limits, jobs.rows(), *device_); !status.ok()) return status;
  gate_.forget(plan);
  if (absl::Status status = filling_.stage(plan, pool_.view(), *device_); !status.ok()) return status;
  if (absl::Status status = meter_.stage(plan, *device_); !status.ok()) return status;
  if (const std::vector<PageToRestore> pages = gate_.stage(plan); !pages.empty()) {
    if (ops_->kv_restore(pages, pool_.view()) > 0) {
      return absl::DataLossError("exact rows did not read back a moment after they were checked: host memory is not to be trusted");
    }
  }
  std::optional<CellCopier> copier;
  if (cell_observer_) copier.emplace(meter_.view(), *device_, cell_observer_);
  const auto forward = [&] {
    decoder_->forward(batch_.view(), pool_.view(), meter_.view(), gate_.view(), copier ? &*copier : nullptr);
  };
  if (!copier && !gate_.view().on && is_repeatable(batch_.view())) {  // the gate's view is not part of the key
    ops_->run_repeatable(step_key(batch_.view(), pool_.view(), meter_.view()), forward);
  } else {
    forward();
  }
  if (copier && copier->finish() != KernelError::kOk) return absl::InternalError("the meter cannot be read");
  StepResult result;
  result.slices.resize(plan.slices.size());
  const size_t block = static_cast<size_t>(decoder_->max_logit_rows());
  for (size_t begin = 0; begin < jobs.sample.size(); begin += block) {
    sample_rows(plan, jobs.sample, begin, std::min(begin + block, jobs.sample.size()), result);
  }
  for (size_t begin = 0; begin < jobs.score.size(); begin += block) {
    score_rows(plan, jobs.score, begin, std::min(begin + block, jobs.score.size()), jobs.sample.size(), result);
  }
  const KernelError error = device_->synchronize();
  if (error != KernelError::kOk) return device_failure(*device_, error);
  if (absl::Status status = meter_.collect(*device_, result); !status.ok()) return status;
  gate_.collect(plan, result);
  return result;
}

std::vector<kv::HeadMeter> ModelExecutor::read_head_meters() {
  absl::StatusOr<std::vector<kv::HeadMeter>> heads = meter_.read_heads(*device_);
  return heads.ok() ? *std::move(heads) : std::vector<kv::HeadMeter>();
}

void ModelExecutor::sample_rows(const StepPlan& plan, const std::vector<HeadJob>& jobs, size_t begin, size_t end,
                                StepResult& result) {
  const size_t count = end - begin;
  const Tensor logits = decoder_->logits(batch_.head_rows() + begin, static_cast<int32_t>(count));
  std::vector<std::vector<int32_t>> forbidden(count);
  std::vector<SamplingRow> rows(count);
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    const SequenceSlice& slice = plan.slices[static_cast<size_t>(jobs[begin + i].slice)];
    rows[i] = make_sampling_row(slice, model_info_.eos_token_ids, config_.vocab_size, forbidden[i]);
  }
  ops_->sample(logits, rows, tokens.data());
  std::vector<LogprobsRow> scores(count);
  for (size_t i = 0; i < count; ++i) {
    const SequenceSlice& slice = plan.slices[static_cast<size_t>(jobs[begin + i].slice)];
    scores[i].token = tokens[i];
    scores[i].num_top = tokens[i] == kNoToken ? -1 : slice.sampling->logprobs;
  }
  ops_->logprobs(logits, scores);
  for (size_t i = 0; i < count; ++i) {
    SliceResult& slice = result.slices[static_cast<size_t>(jobs[begin + i].slice)];
    if (tokens[i] == kNoToken) {
      slice.status = not_finite(jobs[begin + i].position);
      continue;
    }
    slice.sampled = true;
    slice.token = to_token_logprobs(std::move(scores[i]));
  }
}

void ModelExecutor::score_rows(const StepPlan& plan, const std::vector<HeadJob>& jobs, size_t begin, size_t end,
                               size_t first_head_row, StepResult& result) {
  const size_t count = end - begin;
  const Tensor logits = decoder_->logits(batch_.head_rows() + first_head_row + begin, static_cast<int32_t>(count));
  std::vector<LogprobsRow> scores(count);
  for (size_t i = 0; i < count; ++i) {
    const SequenceSlice& slice = plan.slices[static_cast<size_t>(jobs[begin + i].slice)];
    scores[i].token = slice.tokens[jobs[begin + i].position + 1];
    scores[i].num_top = std::max(0, slice.sampling->prompt_logprobs);
  }
  ops_->logprobs(logits, scores);
  for (size_t i = 0; i < count; ++i) {
    SliceResult& slice = result.slices[static_cast<size_t>(jobs[begin + i].slice)];
    if (!scores[i].finite && slice.status.ok()) slice.status = not_finite(jobs[begin + i].position);
    slice.prompt_logprobs.push_back(to_token_logprobs(std::move(scores[i])));
  }
}

absl::StatusOr<std::unique_ptr<Executor>> make_executor(EngineConfig& config) {
  return ModelExecutor::create(config);
}

}  // namespace assay
