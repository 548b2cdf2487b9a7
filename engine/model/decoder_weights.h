// The tensors of one decoder, by role. Views into a WeightSource that must outlive them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "engine/weights/shard.h"
#include "engine/weights/weight_source.h"
#include "kernels/ops.h"

namespace assay {

struct LayerWeights {
  ConstTensor input_norm;
  std::array<LinearPart, 3> qkv;
  ConstTensor q_norm, k_norm;  // absent without QK norm
  LinearPart output;
  ConstTensor post_attention_norm;
  std::array<LinearPart, 2> gate_up;
  LinearPart down;
};

struct DecoderWeights {
  ConstTensor embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  ConstTensor final_norm;
  LinearPart head;             // the embedding where tied
  int64_t num_parameters = 0;  // of the whole model
  int64_t bytes = 0;
};

// The shard's part of every tensor, all shapes checked. InvalidArgument, naming the tensor; also where the source has
// more layers than `config` (a config.json of another model). Other tensors that are left over are a warning.
absl::StatusOr<DecoderWeights> load_decoder_weights(const ModelConfig& config, WeightSource& source,
                                                    const Shard& shard);

}  // namespace assay
