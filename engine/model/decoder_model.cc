#include "engine/model/decoder_model.h"

#include <utility>
#include <vector>

namespace assay {
namespace {

AttentionShape rank_shape(const ModelConfig& config, const Communicator& comm) {
  const Shard shard{comm.rank(), comm.size()};
  return {static_cast<int32_t>(shard.units(config.num_heads)), static_cast<int32_t>(shard.units(config.num_kv_heads)),
          config.head_dim};
}

}  // namespace

DecoderModel::DecoderModel(const ModelConfig& config, const DecoderWeights& weights, RopeFrequencies rope, Ops& ops,
                           Communicator& comm, int32_t max_tokens, int32_t max_logit_rows)
    : config_(config),
      weights_(weights),
      rope_(std::move(rope)),
      ops_(ops),
      comm_(comm),
      shape_(rank_shape(config, comm)),
      inner_(static_cast<int32_t>(Shard{comm.rank(), comm.size()}.units(config.intermediate_size))),
      max_tokens_(max_tokens),
      max_logit_rows_(max_logit_rows) {}

absl::StatusOr<std::unique_ptr<DecoderModel>> DecoderModel::create(const ModelConfig& config,
                                                                   const DecoderWeights& weights, RopeFrequencies rope,
                                                                   Device& device, Ops& ops, Communicator& comm,
                                                                   int32_t max_tokens, int32_t max_logit_rows) {
  auto model = std::unique_ptr<DecoderModel>(
      new DecoderModel(config, weights, std::move(rope), ops, comm, max_tokens, max_logit_rows));
  if (absl::Status status = model->allocate(device); !status.ok()) return status;
  return model;
}

absl::Status DecoderModel::allocate(Device& device) {
  struct Piece {
    Tensor* tensor;
    int64_t rows, cols;
    DType dtype;
  };
  const DType dtype = ops_.activation_dtype();
  const int64_t tokens = max_tokens_, hidden = config_.hidden_size;
  const std::vector<Piece> pieces = {{&hidden_, tokens, hidden, dtype},
                                     {&normed_, tokens, hidden, dtype},
                                     {&qkv_, tokens, shape_.qkv_columns(), dtype},
                                     {&attended_, tokens, int64_t{shape_.num_heads} * shape_.head_dim, dtype},
                                     {&gate_up_, tokens, int64_t{2} * inner_, dtype},
                                     {&activated_, tokens, inner_, dtype},
                                     {&angles_, tokens, shape_.head_dim, DType::kF32},
                                     {&head_input_, max_logit_rows_, hidden, dtype},
                                     {&logits_, max_logit_rows_, config_.vocab_size, DType::kF32}};
  const auto bytes_of = [](const Piece& piece) {
    const size_t bytes = static_cast<size_t>(piece.rows * piece.cols) * dtype_bytes(piece.dtype);
    return (bytes + 63) / 64 * 64;
  };
  size_t total = 0;
  for (const Piece& piece : pieces) total += bytes_of(piece);
  memory_ = Buffer::make(device, total);
  if (memory_.data() == nullptr) {
    return absl::ResourceExhaustedError("no room for " + std::to_string(total >> 20) +
                                        " MiB of activations; lower max_num_batched_tokens");
  }
  std::byte* next = static_cast<std::byte*>(memory_.data());
  for (const Piece& piece : pieces) {
    *piece.tensor = {next, piece.dtype, piece.rows, piece.cols, piece.cols};
    next += bytes_of(piece);
  }
  return absl::OkStatus();
}

void DecoderModel::forward(const BatchView& batch, const PagedKvView& cache, const kv::MeterView& meter,
                           const kv::GateView& gate, QkvObserver* observer) {
  const int32_t rows = batch.num_tokens;
  ops_.embed(weights_.embedding, batch.token_ids, hidden_.first_rows(rows));
  ops_.rope_angles(batch, {rope_.inv_freq.data(), static_cast<int32_t>(rope_.inv_freq.size()), rope_.scale},
                   angles_.f32());
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(layer, batch, cache, meter, gate, observer);
    mlp_block(weights_.layers[static_cast<size_t>(layer)], rows);
  }
}

void DecoderModel::attention_block(int32_t layer, const BatchView& batch, const PagedKvView& cache,
                                   const kv::MeterView& meter, const kv::GateView& gate, QkvObserver* observer) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const int32_t rows = batch.num_tokens;
  const Tensor hidden = hidden_.first_rows(rows), normed = normed_.first_rows(rows), qkv = qkv_.first_rows(rows);
  const Tensor attended = attended_.first_rows(rows);
  ops_.rms_norm(hidden, weights.input_norm, config_.rms_norm_eps, normed);
  ops_.linear(normed, weights.qkv, /*accumulate=*/false, qkv);
  ops_.qk_norm_rope(shape_, weights.q_norm, weights.k_norm, config_.rms_norm_eps, angles_.f32(), qkv);
  if (observer != nullptr) observer->observe(layer, qkv);
  const bool compressed = is_compressed(cache.format);  // then the pool is read as it was before this step
  if (!compressed) ops_.kv_write(layer, batch, shape_, qkv, cache);
  ops_.attention(layer, batch, shape_, qkv, cache, meter, attended);
  if (gate.on) ops_.gate(layer, batch, shape_, qkv, cache, meter, gate, attended);
  if (compressed) ops_.kv_write(layer, batch, shape_, qkv, cache);
  if (meter.num_metered > 0) ops_.fold_meters(layer, meter);
  project_and_add(weights.output, attended, hidden);
}

void DecoderModel::mlp_block(const LayerWeights& weights, int32_t rows) {
  const Tensor hidden = hidden_.first_rows(rows), normed = normed_.first_rows(rows);
  const Tensor gate_up = gate_up_.first_rows(rows), activated = activated_.first_rows(rows);
  ops_.rms_norm(hidden, weights.post_attention_norm, config_.rms_norm_eps, normed);
  ops_.gated_linear(normed, weights.gate_up, gate_up, activated);
  project_and_add(weights.down, activated, hidden);
}

// The residual is added on one rank, so that the sum over ranks holds it once.
void DecoderModel::project_and_add(const LinearPart& part, const Tensor& x, const Tensor& hidden) {
  ops_.linear(x, {&part, 1}, /*accumulate=*/comm_.rank() == 0, hidden);
  comm_.all_reduce(hidden);
}

Tensor DecoderModel::logits(const int32_t* rows, int32_t count) {
  const Tensor input = head_input_.first_rows(count), logits = logits_.first_rows(count);
  ops_.gather_rows(hidden_, rows, input);
  ops_.rms_norm(input, weights_.final_norm, config_.rms_norm_eps, input);
  ops_.linear(input, {&weights_.head, 1}, /*accumulate=*/false, logits);
  return logits;
}

}  // namespace assay
