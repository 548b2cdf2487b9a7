// One decoder for every family: embed; per layer norm, attention, norm, gated MLP; final norm and head on chosen rows.
//
// Owns: its activations (device memory for `max_tokens` rows). Borrows: weights, Ops, Device, Communicator.
// Threads: one caller at a time. Errors: ResourceExhausted where the activations do not fit.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/model_config.h"
#include "engine/model/rope.h"
#include "kernels/core/buffer.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace assay {

// Sees q, k and v of a layer after norm and rotary embedding.
class QkvObserver {
 public:
  virtual ~QkvObserver() = default;
  // qkv [num_tokens, (heads + 2 x KV heads) x head_dim], device memory, valid during the call.
  virtual void observe(int32_t layer, ConstTensor qkv) = 0;
};

class DecoderModel {
 public:
  // `max_tokens`: rows of one step; `max_logit_rows`: rows of one call of logits().
  static absl::StatusOr<std::unique_ptr<DecoderModel>> create(const ModelConfig& config, const DecoderWeights& weights,
                                                              RopeFrequencies rope, Device& device, Ops& ops,
                                                              Communicator& comm, int32_t max_tokens,
                                                              int32_t max_logit_rows);

  // Runs all layers over the batch; K and V of its rows go into the cache. `meter`: rows to meter on pools that can.
  // `observer` (may be null) sees each layer's q, k, v as attention does.
  // `gate`: what lowers metered cells over their thresholds.
  void forward(const BatchView& batch, const PagedKvView& cache, const kv::MeterView& meter = {},
               const kv::GateView& gate = {}, QkvObserver* observer = nullptr);

  // Logits [count, vocab_size] of rows of the last forward; `rows` [count] is device memory. Valid until the next call.
  Tensor logits(const int32_t* rows, int32_t count);

  DType activation_dtype() const { return hidden_.dtype; }
  int32_t max_tokens() const { return max_tokens_; }
  int32_t max_logit_rows() const { return max_logit_rows_; }

 private:
  DecoderModel(const ModelConfig& config, const DecoderWeights& weights, RopeFrequencies rope, Ops& ops,
               Communicator& comm, int32_t max_tokens, int32_t max_logit_rows);
  absl::Status allocate(Device& device);
  void attention_block(int32_t layer, const BatchView& batch, const PagedKvView& cache, const kv::MeterView& meter,
                       const kv::GateView& gate, QkvObserver* observer);
  void mlp_block(const LayerWeights& weights, int32_t rows);
  void project_and_add(const LinearPart& part, const Tensor& x, const Tensor& hidden);

  const ModelConfig config_;
  const DecoderWeights& weights_;
  const RopeFrequencies rope_;
  Ops& ops_;
  Communicator& comm_;
  const AttentionShape shape_;  // of this rank
  const int32_t inner_;         // MLP columns of this rank
  const int32_t max_tokens_;
  const int32_t max_logit_rows_;
  Buffer memory_;
  Tensor hidden_, normed_, qkv_, attended_, gate_up_, activated_, angles_;  // [max_tokens, ...]
  Tensor head_input_, logits_;                                              // [max_logit_rows, ...]
};

}  // namespace assay
