// Working memory of attention over a compressed pool. Pairs are (row, head of the group), as in attention_state.h.
#pragma once

#include "kernels/cpu/attention_state.h"
#include "kernels/kv/bounds.h"

namespace assay {

constexpr int32_t kStepTokens = 64;  // of a stored step in fragment order
constexpr int32_t kStepTiles = kStepTokens / kTileTokens;

// Sums of one pair, each in 16 lanes that are added at the end.
enum PairSum : int32_t { kWeight, kB1, kB2, kRadius, kValueError, kOtherB1, kOtherB2, kOtherRadius, kNumPairSums };
constexpr int32_t kPairSumFloats = kNumPairSums * 16;

// Running softmax and meter of one part of the context.
struct PoolState {
  float* max;   // [pairs] largest logit
  float* sums;  // [pairs][kNumPairSums][16], relative to max
  float* acc;   // [pairs][acc_stride] weighted sum of V
};

// The side numbers of a step, in the order of its scores.
struct StepSide {
  float* masked;       // 0 where the token counts, -infinity where not
  float* scale;        // of K times the softmax scale
  float* witness;      // w_t
  float* value_scale;  // of V
  float* rho;
};

struct PoolBlock {
  AttentionBlock stored;  // queries as the pool's keys need them; its k_tile and v_tile serve decoded tiles
  AttentionBlock own;     // the model's queries; positions count from the slice's start
  int32_t stored_tokens = 0;
  int32_t acc_stride = 0;  // of the stored part
  bool fragments = false;  // stored rows are read in fragment order
  bool dithered = false;   // sums of the smaller radius are kept as well
  float softmax_scale = 0;
  const uint8_t* metered = nullptr;    // [pairs]
  const float* factor = nullptr;       // [pairs] sc |q'|, rounded up
  const float* own_factor = nullptr;   // [pairs] sc |q| times the margin of a float product
  const float* q_fragments = nullptr;  // [pairs][2 head_dim]
  StepSide side{};
  float* scores = nullptr;     // [pairs][kStepTokens], then the weights of V
  float* own_norms = nullptr;  // [16] |k_t|, rounded up
};

}  // namespace assay
