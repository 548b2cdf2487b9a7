// One pass over a text at start: how large q and k are, channel by channel, and the balance that follows.
//
// The pass runs on an exact pool, so its result depends on the model, the tokens and nothing else (not on threads,
// chunks or ranks). A poor text only loosens bounds, it never breaks one. Threads: one caller. Errors: Internal or
// ResourceExhausted from the device.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/decoder_model.h"
#include "kernels/device.h"

namespace assay {

// Second moments after norm and rotary embedding, [layer][KV head][channel]; those of q over the head's query heads.
struct ChannelMoments {
  std::vector<double> key, query;
};

// `tokens` in pieces of at most max_context positions, each from position 0. The decoder must be idle.
absl::StatusOr<ChannelMoments> measure_moments(const std::vector<int32_t>& tokens, int32_t max_context,
                                               const ModelConfig& config, DecoderModel& decoder, Device& device);

// A token sequence for engines that got no text: seeded, within the vocabulary.
std::vector<int32_t> default_calibration_tokens(int32_t vocab_size);

// Balance of keys: (E[k^2] / E[q^2])^(1/4) per channel, geometric mean 1 per head, within 2^-8..2^8; 1 where either is
// zero or not finite.
std::vector<float> balance_of(const ChannelMoments& moments, int32_t head_dim);

}  // namespace assay
