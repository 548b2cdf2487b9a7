#include "engine/execute/pool_setup.h"

#include <random>
#include <utility>

#include "engine/execute/calibration.h"

namespace assay {
namespace {

uint64_t secret_seed() {
  std::random_device system;
  return (uint64_t{system()} << 32) | system();
}

// Pair p of a head is channels p and p + head_dim / 2.
std::vector<uint16_t> channels_of(const std::vector<int32_t>& pairs, int32_t pairs_per_head, int32_t head_dim) {
  std::vector<uint16_t> channels;
  channels.reserve(2 * pairs.size());
  const size_t count = static_cast<size_t>(pairs_per_head);
  for (size_t first = 0; first + count <= pairs.size() && count > 0; first += count) {
    for (int32_t half = 0; half < 2; ++half) {
      for (size_t i = 0; i < count; ++i) {
        channels.push_back(static_cast<uint16_t>(pairs[first + i] + half * head_dim / 2));
      }
    }
  }
  return channels;
}

bool needs_calibration(const EngineConfig& config, const PoolLayout& layout) {
  return (layout.format == KvFormat::kCertified && config.kv_balance) || layout.bypass_channels > 0 ||
         (layout.format == KvFormat::kObserved && std::string(layout.scale_source) == "calibration");
}

}  // namespace

absl::StatusOr<PoolTransform> make_pool_transform(const EngineConfig& config, const ModelConfig& model,
                                                  const CachePlan& cache, DecoderModel& decoder, Device& device) {
  PoolTransform transform;
  const PoolLayout& layout = cache.layout;
  if (!is_compressed(layout.format)) return transform;
  transform.seed = config.kv_seed ? *config.kv_seed : secret_seed();
  if (cache.meter.radius != kv::RadiusKind::kWitness) {
    const bool per_slot = config.kv_dither_stream == "per-slot";
    transform.dither_stream = per_slot ? DitherStream::kPerSlot : DitherStream::kPeriodic;
  }
  if (layout.format == KvFormat::kCertified && config.kv_rotation) {
    transform.signs.resize(static_cast<size_t>(model.head_dim));
    kv::rotation_signs(model.head_dim, transform.signs.data());
  }
  if (!needs_calibration(config, layout)) return transform;
  absl::StatusOr<PoolCalibration> calibration = calibrate_pool(config, model, decoder, device);
  if (!calibration.ok()) return calibration.status();
  if (layout.format == KvFormat::kCertified) transform.lambda = std::move(calibration->lambda);
  if (layout.format == KvFormat::kWitcert) {
    transform.bypass = channels_of(calibration->outlier_pairs, config.kv_outlier_pairs, model.head_dim);
  }
  if (layout.format == KvFormat::kObserved) {
    transform.key_scale = std::move(calibration->key_scale);
    transform.value_scale = std::move(calibration->value_scale);
  }
  return transform;
}

}  // namespace assay
