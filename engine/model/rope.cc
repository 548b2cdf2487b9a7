#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace assay {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

std::vector<double> plain_frequencies(double theta, int32_t head_dim) {
  std::vector<double> inv_freq(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = 1.0 / std::pow(theta, 2.0 * static_cast<double>(i) / head_dim);
  }
  return inv_freq;
}

// Neural-tangent-kernel scaling: the base grows so that the slowest pair is stretched to `length`.
double dynamic_theta(const RopeConfig& rope, int32_t head_dim, int64_t original, int64_t length) {
  if (length <= original || head_dim <= 2) return rope.theta;
  const double ratio = static_cast<double>(length) / static_cast<double>(original);
  return rope.theta * std::pow(rope.factor * ratio - (rope.factor - 1.0), head_dim / (head_dim - 2.0));
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0) {
    return yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  }
  return yarn_mscale(rope.factor, 1.0);
}

// The (fractional) pair that turns `rotations` times over the original context.
double yarn_pair(const RopeConfig& rope, double rotations, int32_t head_dim, int64_t original) {
  return head_dim * std::log(static_cast<double>(original) / (rotations * kTwoPi)) / (2.0 * std::log(rope.theta));
}

void scale_yarn(const RopeConfig& rope, int32_t head_dim, int64_t original, std::vector<double>& inv_freq) {
  double low = yarn_pair(rope, rope.beta_fast, head_dim, original);
  double high = yarn_pair(rope, rope.beta_slow, head_dim, original);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / rope.factor * ramp + inv_freq[i] * (1.0 - ramp);
  }
}

void scale_llama3(const RopeConfig& rope, int64_t original, std::vector<double>& inv_freq) {
  for (double& frequency : inv_freq) {
    const double turns = static_cast<double>(original) * frequency / kTwoPi;  // over the original context
    if (turns >= rope.high_freq_factor) continue;
    const double smooth =
        std::max(0.0, (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor));
    frequency = (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
  }
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, int32_t head_dim, int64_t max_position_embeddings,
                                 int64_t max_model_len) {
  const int64_t original = rope.original_max_position > 0 ? rope.original_max_position : max_position_embeddings;
  const bool dynamic = rope.kind == RopeKind::kDynamic;
  const double theta = dynamic ? dynamic_theta(rope, head_dim, original, max_model_len) : rope.theta;
  std::vector<double> inv_freq = plain_frequencies(theta, head_dim);
  RopeFrequencies result;
  switch (rope.kind) {
    case RopeKind::kDefault:
    case RopeKind::kDynamic:
      break;
    case RopeKind::kLinear:
      for (double& frequency : inv_freq) frequency /= rope.factor;
      break;
    case RopeKind::kYarn:
      scale_yarn(rope, head_dim, original, inv_freq);
      result.scale = static_cast<float>(yarn_attention_factor(rope));
      break;
    case RopeKind::kLlama3:
      scale_llama3(rope, original, inv_freq);
      break;
  }
  result.inv_freq.assign(inv_freq.begin(), inv_freq.end());
  return result;
}

int64_t rope_context_length(const RopeConfig& rope, int64_t max_position_embeddings) {
  const auto stretched = [&](int64_t length) {
    return static_cast<int64_t>(static_cast<double>(length) * rope.factor);
  };
  switch (rope.kind) {
    case RopeKind::kLinear:
    case RopeKind::kDynamic:
      return stretched(max_position_embeddings);
    case RopeKind::kYarn: {
      const int64_t original = rope.original_max_position > 0 ? rope.original_max_position : max_position_embeddings;
      return std::max(max_position_embeddings, stretched(original));
    }
    case RopeKind::kDefault:
    case RopeKind::kLlama3:
      break;
  }
  return max_position_embeddings;
}

}  // namespace assay
