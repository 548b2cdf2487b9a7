#include "engine/model/decoder_weights.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "spdlog/spdlog.h"

namespace assay {
namespace {

// Fetches tensors and keeps the first failure, so that a layer reads as a list of its tensors.
class Loader {
 public:
  Loader(const ModelConfig& config, WeightSource& source, const Shard& shard, DecoderWeights& weights)
      : config_(config), source_(source), shard_(shard), weights_(weights) {}

  ConstTensor tensor(const std::string& name, int64_t rows, int64_t cols) {
    if (!status_.ok()) return {};
    const absl::StatusOr<ConstTensor> tensor = source_.get(name, rows, cols);
    if (!tensor.ok()) {
      status_ = tensor.status();
      return {};
    }
    weights_.num_parameters += rows * cols;
    weights_.bytes += rows * cols * static_cast<int64_t>(dtype_bytes(tensor->dtype));
    return *tensor;
  }

  ConstTensor vector(const std::string& name, int64_t size) { return tensor(name, 1, size); }

  // Output rows split over ranks, in `units` equal groups.
  LinearPart column_parallel(const std::string& name, int64_t rows, int64_t cols, bool bias, int64_t units) {
    LinearPart part;
    part.weight = tensor(name + ".weight", rows, cols);
    if (bias) part.bias = vector(name + ".bias", rows);
    if (!status_.ok()) return {};
    part.weight = shard_.rows(part.weight, units);
    if (part.bias) part.bias = shard_.columns(part.bias, units);
    return part;
  }

  // Input columns split over ranks; the first rank alone adds the bias to the sum.
  LinearPart row_parallel(const std::string& name, int64_t rows, int64_t cols, bool bias, int64_t units) {
    LinearPart part;
    part.weight = tensor(name + ".weight", rows, cols);
    if (bias) part.bias = vector(name + ".bias", rows);
    if (!status_.ok()) return {};
    part.weight = shard_.columns(part.weight, units);
    if (shard_.rank != 0) part.bias = {};
    return part;
  }

  LayerWeights layer(int32_t index) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size, dim = config_.head_dim;
    const int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
    LayerWeights w;
    w.input_norm = vector(prefix + "input_layernorm.weight", hidden);
    w.qkv = {column_parallel(attention + "q_proj", heads * dim, hidden, config_.qkv_bias, heads),
             column_parallel(attention + "k_proj", kv_heads * dim, hidden, config_.qkv_bias, kv_heads),
             column_parallel(attention + "v_proj", kv_heads * dim, hidden, config_.qkv_bias, kv_heads)};
    if (config_.qk_norm) {
      w.q_norm = vector(attention + "q_norm.weight", dim);
      w.k_norm = vector(attention + "k_norm.weight", dim);
    }
    w.output = row_parallel(attention + "o_proj", hidden, heads * dim, config_.output_bias, heads);
    w.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", hidden);
    w.gate_up = {column_parallel(mlp + "gate_proj", inner, hidden, config_.mlp_bias, inner),
                 column_parallel(mlp + "up_proj", inner, hidden, config_.mlp_bias, inner)};
    w.down = row_parallel(mlp + "down_proj", hidden, inner, config_.mlp_bias, inner);
    return w;
  }

  const absl::Status& status() const { return status_; }

 private:
  const ModelConfig& config_;
  WeightSource& source_;
  const Shard& shard_;
  DecoderWeights& weights_;
  absl::Status status_;
};

// "model.layers.7.mlp..." -> 7
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

// Old checkpoints store the rotary frequencies, which follow from config.json.
bool is_derived(std::string_view name) {
  return name.size() >= 8 && name.substr(name.size() - 8) == "inv_freq";
}

absl::Status check_unused(const ModelConfig& config, const std::vector<std::string>& unused) {
  constexpr size_t kNamed = 5;
  int64_t layers = 0;
  size_t num_left = 0;
  std::string named;
  for (const std::string& name : unused) {
    layers = std::max(layers, layer_of(name).value_or(-1) + 1);
    if (is_derived(name)) continue;
    if (num_left < kNamed) named += (num_left > 0 ? ", " : "") + name;
    ++num_left;
  }
  if (layers > config.num_layers) {
    return absl::InvalidArgumentError("the weights have " + std::to_string(layers) +
                                      " layers, but config.json says num_hidden_layers = " +
                                      std::to_string(config.num_layers) + "; the two belong to different models");
  }
  if (num_left > 0) {
    spdlog::warn("{} tensors of the weights are not part of {} as config.json describes it and are ignored: {}{}",
                 num_left, config.architecture, named, num_left > kNamed ? ", ..." : "");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderWeights> load_decoder_weights(const ModelConfig& config, WeightSource& source,
                                                    const Shard& shard) {
  DecoderWeights weights;
  Loader loader(config, source, shard, weights);
  weights.embedding = loader.tensor("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int32_t layer = 0; layer < config.num_layers && loader.status().ok(); ++layer) {
    weights.layers.push_back(loader.layer(layer));
  }
  weights.final_norm = loader.vector("model.norm.weight", config.hidden_size);
  if (config.tie_word_embeddings) {
    weights.head.weight = weights.embedding;
  } else if (loader.status().ok() && !source.contains("lm_head.weight")) {
    return absl::InvalidArgumentError(
        "the weights have no tensor \"lm_head.weight\" and tie_word_embeddings is not true in config.json");
  } else {
    weights.head.weight = loader.tensor("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  if (!loader.status().ok()) return loader.status();
  if (shard.rank == 0) {
    if (absl::Status status = check_unused(config, source.unused()); !status.ok()) return status;
  }
  return weights;
}

}  // namespace assay
