// One pass over a text at start: how large q, k and v are, channel by channel, and what a compressed pool makes of
// that.
//
// The pass runs on an exact pool, so its result depends on the model, the tokens and nothing else (not on threads,
// chunks or ranks). A poor text only loosens bounds, it never breaks one. Threads: one caller. Errors: Internal or
// ResourceExhausted from the device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/config.h"
#include "engine/model/decoder_model.h"
#include "kernels/device.h"

namespace assay {

// What the pass measures, after norm and rotary embedding.
struct ChannelMoments {
  // Sums of squares, [layer][KV head][channel]; those of q over the head's query heads.
  std::vector<double> key, query;
  std::vector<float> key_amax, value_amax;  // largest magnitudes, [layer][KV head]
};

// What the pools take from it.
struct PoolCalibration {
  std::vector<float> lambda;           // balance of keys, [layer][KV head][head_dim]: finite, positive
  std::vector<int32_t> outlier_pairs;  // bypassed rotary pairs, [layer][KV head][m], ascending; pair p is channels p
                                       // and p + head_dim / 2
  // Steps of static eight-bit levels, [layer][KV head]: the largest magnitude / 127; finite, positive. 1 where the text
  // had zeros only.
  std::vector<float> key_scale, value_scale;
};

// `tokens` in pieces of at most max_context positions, each from position 0. The decoder must be idle.
absl::StatusOr<ChannelMoments> measure_moments(const std::vector<int32_t>& tokens, int32_t max_context,
                                               const ModelConfig& config, DecoderModel& decoder, Device& device);

// A token sequence for engines that got no text: seeded, within the vocabulary.
std::vector<int32_t> default_calibration_tokens(int32_t vocab_size);

// Balance of keys: (E[k^2] / E[q^2])^(1/4) per channel, geometric mean 1 per head, within 2^-8..2^8; 1 where either is
// zero or not finite.
std::vector<float> balance_of(const ChannelMoments& moments, int32_t head_dim);

// The `count` rotary pairs of each (layer, KV head) whose keys have the most energy; of equals the lower one.
// 0 <= count <= head_dim / 2.
std::vector<int32_t> outlier_pairs_of(const ChannelMoments& moments, int32_t head_dim, int32_t count);

// All of PoolCalibration, `outlier_pairs` pairs a head.
PoolCalibration pool_calibration_of(const ChannelMoments& moments, int32_t head_dim, int32_t outlier_pairs);

// For `config` as resolved, with its kv_outlier_pairs. kIgnore and dummy weights: a pass over
// config.calibration_tokens. kUse: from the file of `assay calibrate` beside the model, else from the file that an
// earlier start left there (same model, same tokens), else from a pass, kept beside the model where it can be written;
// a file that cannot be used is a warning. kReplace: a pass, written as the file of `assay calibrate`; PermissionDenied
// or Internal where it cannot be.
absl::StatusOr<PoolCalibration> calibrate_pool(const EngineConfig& config, const ModelConfig& model,
                                               DecoderModel& decoder, Device& device);

}  // namespace assay
