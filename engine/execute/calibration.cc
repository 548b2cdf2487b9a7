#include "engine/execute/calibration.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "cache/pool/pool_layout.h"
#include "engine/execute/calibration_file.h"
#include "engine/execute/kv_pool.h"
#include "engine/execute/step_batch.h"
#include "kernels/kv/philox.h"
#include "spdlog/spdlog.h"

namespace assay {
namespace {

constexpr int32_t kDefaultTokens = 512;
constexpr double kLargestBalance = 256.0;

class MomentObserver final : public QkvObserver {
 public:
  MomentObserver(const ModelConfig& config, Device& device, ChannelMoments& moments)
      : config_(config), device_(device), moments_(moments) {
    const size_t heads = static_cast<size_t>(config.num_layers) * static_cast<size_t>(config.num_kv_heads);
    const size_t channels = heads * static_cast<size_t>(config.head_dim);
    moments.key.assign(channels, 0.0);
    moments.query.assign(channels, 0.0);
    moments.key_amax.assign(heads, 0.0f);
    moments.value_amax.assign(heads, 0.0f);
  }

  void observe(int32_t layer, ConstTensor qkv) override {
    const size_t count = static_cast<size_t>(qkv.rows * qkv.row_stride);
    host_.resize(count);
    stored_.resize(count * dtype_bytes(qkv.dtype));
    error_ = device_.copy_to_host(stored_.data(), qkv.data, stored_.size());
    if (error_ != KernelError::kOk) return;
    for (size_t i = 0; i < count; ++i) host_[i] = load_as_f32(qkv.dtype, stored_.data(), static_cast<int64_t>(i));
    const int32_t dim = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
    for (int64_t row = 0; row < qkv.rows; ++row) {
      const float* q = host_.data() + row * qkv.row_stride;
      const float* k = q + config_.num_heads * dim;
      const float* v = k + config_.num_kv_heads * dim;
      for (int32_t head = 0; head < config_.num_heads; ++head) add(layer, head / group, q + head * dim, moments_.query);
      for (int32_t head = 0; head < config_.num_kv_heads; ++head) {
        add(layer, head, k + head * dim, moments_.key);
        raise(layer, head, k + head * dim, moments_.key_amax);
        raise(layer, head, v + head * dim, moments_.value_amax);
      }
    }
  }
  KernelError error() const { return error_; }

 private:
  void add(int32_t layer, int32_t kv_head, const float* x, std::vector<double>& to) const {
    const int32_t dim = config_.head_dim;
    double* sums = to.data() + (int64_t{layer} * config_.num_kv_heads + kv_head) * dim;
    for (int32_t c = 0; c < dim; ++c) sums[c] += static_cast<double>(x[c]) * x[c];
  }
  void raise(int32_t layer, int32_t kv_head, const float* x, std::vector<float>& to) const {
    float& largest = to[static_cast<size_t>(layer * config_.num_kv_heads + kv_head)];
    for (int32_t c = 0; c < config_.head_dim; ++c) largest = std::max(largest, std::abs(x[c]));
  }

  const ModelConfig& config_;
  Device& device_;
  ChannelMoments& moments_;
  std::vector<std::byte> stored_;
  std::vector<float> host_;
  KernelError error_ = KernelError::kOk;
};

std::vector<float> scales_of(const std::vector<float>& amax) {
  std::vector<float> scales;
  for (float largest : amax) {
    const float scale = largest / 127.0f;
    scales.push_back(scale > 0.0f && std::isfinite(scale) ? scale : 1.0f);
  }
  return scales;
}

std::vector<int32_t> pass_tokens(const EngineConfig& config, int32_t vocab_size) {
  return config.calibration_tokens.empty() ? default_calibration_tokens(vocab_size) : config.calibration_tokens;
}

// Nothing where there is no file that can be used.
absl::StatusOr<ChannelMoments> moments_from_files(const EngineConfig& config, const ModelConfig& model) {
  absl::Status last = absl::NotFoundError("no calibration file");
  for (CalibrationOrigin origin : {CalibrationOrigin::kOperator, CalibrationOrigin::kStart}) {
    const absl::StatusOr<CalibrationKey> key = calibration_key(config, pass_tokens(config, model.vocab_size), origin);
    if (!key.ok()) return key.status();
    const std::string path = calibration_path(config.model_dir, origin);
    absl::StatusOr<ChannelMoments> moments = read_calibration(path, *key, model);
    if (moments.ok()) {
      spdlog::info("calibration of the KV cache: {}", path);
      return moments;
    }
    if (!absl::IsNotFound(moments.status())) {
      spdlog::warn("{}; it is not used", std::string(moments.status().message()));
    }
    last = moments.status();
  }
  return last;
}

absl::Status keep(const EngineConfig& config, const ModelConfig& model, const ChannelMoments& moments,
                  CalibrationOrigin origin) {
  const absl::StatusOr<CalibrationKey> key = calibration_key(config, pass_tokens(config, model.vocab_size), origin);
  if (!key.ok()) return key.status();
  return write_calibration(calibration_path(config.model_dir, origin), *key, moments);
}

}  // namespace

absl::StatusOr<ChannelMoments> measure_moments(const std::vector<int32_t>& tokens, int32_t max_context,
                                               const ModelConfig& config, DecoderModel& decoder, Device& device) {
  ChannelMoments moments;
  MomentObserver observer(config, device, moments);
  constexpr int32_t kPageTokens = 64;
  const KvShape shape{config.num_layers, config.num_kv_heads, config.head_dim, kPageTokens, decoder.activation_dtype()};
  const absl::StatusOr<PoolLayout> layout = make_pool_layout("exact", shape);
  if (!layout.ok()) return layout.status();
  const int32_t total = static_cast<int32_t>(tokens.size()), piece = std::min(total, max_context);
  const int32_t num_pages = (piece + kPageTokens - 1) / kPageTokens;
  const absl::StatusOr<KvPool> pool = KvPool::make(device, *layout, num_pages, {});
  if (!pool.ok()) return pool.status();
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  StepBatch batch;
  for (int32_t start = 0; start < total; start += piece) {
    const int32_t length = std::min(piece, total - start);
    for (int32_t first = 0; first < length; first += decoder.max_tokens()) {
      StepPlan plan;
      SequenceSlice slice;
      slice.tokens = tokens.data() + start;
      slice.num_known_tokens = slice.num_prompt_tokens = length;
      slice.first_position = first;
      slice.num_tokens = plan.num_tokens = std::min(decoder.max_tokens(), length - first);
      slice.pages = pages.data();
      slice.num_pages = num_pages;
      plan.slices.push_back(slice);
      const BatchLimits limits{decoder.max_tokens(), config.vocab_size, kPageTokens, num_pages};
      if (absl::Status status = batch.stage(plan, limits, {}, device); !status.ok()) return status;
      decoder.forward(batch.view(), pool->view(), {}, {}, &observer);
      const KernelError error = observer.error() != KernelError::kOk ? observer.error() : device.synchronize();
      if (error != KernelError::kOk) return absl::InternalError(kernel_error_name(error));
    }
  }
  return moments;
}

std::vector<int32_t> default_calibration_tokens(int32_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kDefaultTokens; ++i) {
    const kv::PhiloxBlock drawn =
        kv::philox4x32_10(kv::PhiloxBlock{{static_cast<uint32_t>(i), 0, 0, 0}}, 0x63616c69u, 0x62726174u);
    tokens.push_back(static_cast<int32_t>(drawn.word[0] % static_cast<uint32_t>(vocab_size)));
  }
  return tokens;
}

std::vector<float> balance_of(const ChannelMoments& moments, int32_t head_dim) {
  std::vector<float> lambda(moments.key.size(), 1.0f);
  const size_t dim = static_cast<size_t>(head_dim);
  for (size_t head = 0; head + dim <= lambda.size(); head += dim) {
    std::vector<double> logs(dim, 0.0);
    double mean = 0.0;
    for (size_t c = 0; c < dim; ++c) {
      const double ratio = moments.key[head + c] / moments.query[head + c];
      if (ratio > 0.0 && std::isfinite(ratio)) logs[c] = 0.25 * std::log(ratio);
      mean += logs[c] / static_cast<double>(dim);
    }
    for (size_t c = 0; c < dim; ++c) {
      lambda[head + c] =
          static_cast<float>(std::clamp(std::exp(logs[c] - mean), 1.0 / kLargestBalance, kLargestBalance));
    }
  }
  return lambda;
}

std::vector<int32_t> outlier_pairs_of(const ChannelMoments& moments, int32_t head_dim, int32_t count) {
  std::vector<int32_t> pairs;
  const int32_t half = head_dim / 2;
  std::vector<int32_t> order(static_cast<size_t>(half));
  for (size_t head = 0; head < moments.key.size(); head += static_cast<size_t>(head_dim)) {
    const double* k = moments.key.data() + head;
    const auto energy = [&](int32_t pair) { return k[pair] + k[pair + half]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return energy(a) > energy(b); });
    std::sort(order.begin(), order.begin() + count);
    pairs.insert(pairs.end(), order.begin(), order.begin() + count);
  }
  return pairs;
}

PoolCalibration pool_calibration_of(const ChannelMoments& moments, int32_t head_dim, int32_t outlier_pairs) {
  return {balance_of(moments, head_dim), outlier_pairs_of(moments, head_dim, outlier_pairs),
          scales_of(moments.key_amax), scales_of(moments.value_amax)};
}

absl::StatusOr<PoolCalibration> calibrate_pool(const EngineConfig& config, const ModelConfig& model,
                                               DecoderModel& decoder, Device& device) {
  using Files = EngineConfig::CalibrationFiles;
  const Files files = config.dummy_weights ? Files::kIgnore : config.calibration_files;
  absl::StatusOr<ChannelMoments> moments = absl::NotFoundError("not looked for");
  if (files == Files::kUse) moments = moments_from_files(config, model);
  if (!moments.ok()) {
    moments = measure_moments(pass_tokens(config, model.vocab_size), config.max_model_len, model, decoder, device);
    if (!moments.ok()) return moments.status();
    if (files == Files::kReplace) {
      if (absl::Status kept = keep(config, model, *moments, CalibrationOrigin::kOperator); !kept.ok()) return kept;
    }
    if (files == Files::kUse) {
      const absl::Status kept = keep(config, model, *moments, CalibrationOrigin::kStart);
      if (!kept.ok()) spdlog::debug("the calibration is not kept: {}", std::string(kept.message()));
    }
  }
  return pool_calibration_of(*moments, model.head_dim, config.kv_outlier_pairs);
}

}  // namespace assay
