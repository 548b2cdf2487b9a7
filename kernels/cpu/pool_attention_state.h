// Working memory of attention over a compressed pool. Pairs are (row, head of the group), as in attention_state.h.
// Stored rows go in steps of up to kMaxStepTiles tiles; the numbers beside the payloads of a step lie in arrays of
// kMaxStepTokens, in value_side_index order within each tile where rows are read in fragment order.
#pragma once

#include "kernels/cpu/attention_log.h"
#include "kernels/cpu/attention_state.h"
#include "kernels/kv/fold_cell.h"

namespace assay {

constexpr int32_t kMaxStepTiles = 8;
constexpr int32_t kMaxStepTokens = kMaxStepTiles * kTileTokens;
constexpr int32_t kDitherTokens = 64;  // of one row of products with the dither: its period
constexpr int32_t kDigits = 3;         // bytes of an operand of integer products

// Sums of one pair, each in 16 lanes that are added at the end. The first radius is the one that the pool has; where
// it has two, the Other sums take the smaller of them, token by token.
enum PairSum : int32_t { kWeight, kB1, kB2, kRadius, kValueError, kOtherB1, kOtherB2, kOtherRadius, kNumPairSums };
constexpr int32_t kPairSumFloats = kNumPairSums * 16;

// Running softmax and meter of one part of the context.
struct PoolState {
  float* max;   // [pairs] largest logit
  float* sums;  // [pairs][kNumPairSums][16], relative to max
  float* acc;   // [pairs][acc_stride] weighted sum of V
};

// The numbers beside the payloads of a step. [groups] of scales per row: 1, or head_dim / 32 for witcert.
struct StepSide {
  float* masked;       // [tokens] 0 where the token counts, -infinity where not
  float* scale;        // [groups][kMaxStepTokens] of K
  float* value_scale;  // [groups][kMaxStepTokens] of V
  float* witness;      // [tokens] w_t
  float* rho;          // [tokens]
  float* dither_norm;  // [tokens] norm of the steps of a row; +infinity where the row is exact-only
  float* bypass;       // [2 x pairs bypassed][kMaxStepTokens] channels stored apart
};

// What a pair brings along besides its query rows.
struct PairTerms {
  float* q_own;            // [pairs][head_dim] the model's, times sc
  float* q_pool;           // [pairs][head_dim] as the pool's keys need them, bypassed channels zero
  float* factor;           // [pairs][bands] sc |q'| (of a band), rounded up
  float* own_factor;       // [pairs] sc |q| times the margin of a float product
  float* scale;            // [pairs] what raw scores are multiplied by
  float* q_fragments;      // [pairs][2 head_dim] floats in fragment order
  int8_t* q_digits;        // [pairs][head_dim / 32][kDigits][64]
  int32_t* q_start;        // [pairs][kDigits][16] takes the payload's bias of 128 out again
  float* dither_dots;      // [pairs][groups][kDitherTokens] sc q'.xi
  float* dither_variance;  // [pairs][groups] (sc kappa)^2 Q_g^2 / 12
  float* dither_bias;      // [pairs][groups]
  float* dither_norm;      // [pairs] of StepSide::dither_norm: the arithmetic's part
  float* bypass_query;     // [pairs][2 x pairs bypassed] sc q
};

struct PoolBlock {
  AttentionBlock stored;  // queries as the pool's keys need them; its k_tile and v_tile serve decoded tiles
  AttentionBlock own;     // the model's queries; positions count from the slice's start
  int32_t stored_tokens = 0;
  int32_t acc_stride = 0;  // of the stored part
  int32_t step_tiles = kMaxStepTiles;
  int32_t groups = 1;        // scales per row
  int32_t bands = 1;         // witnesses per row
  int32_t bypass_count = 0;  // channels stored apart
  bool fragments = false;    // stored rows are read in fragment order
  bool integers = false;     // with integer products
  kv::RadiusKind radius = kv::RadiusKind::kWitness;
  float softmax_scale = 0;
  const std::byte* const* page_rows =
      nullptr;                            // [pages] exact rows of each, null = its record; null = as the cache says
  const AttentionLogView* log = nullptr;  // of one row; null = nobody asks
  uint8_t* metered = nullptr;             // [pairs]
  float* kappa = nullptr;                 // [pairs]
  PairTerms terms{};
  StepSide side{};
  float* scores = nullptr;          // [pairs][kMaxStepTokens], then the served weights
  float* weights = nullptr;         // [4][kMaxStepTokens] weights times scales of V, of some pairs and one group
  float* bypass_radii = nullptr;    // [pairs][kMaxStepTokens]
  float* tile_radii = nullptr;      // [pairs][2][16] of a decoded tile
  float* own_norms = nullptr;       // [16] |k_t|, rounded up
  float* exact_rows = nullptr;      // [2][16][dim_stride] K and V of a tile of an exact page
  int8_t* weight_digits = nullptr;  // [4][kMaxStepTiles][kDigits][64]

  const std::byte* record(int32_t tile) const {
    return stored.cache->record_of(stored.layer, stored.pages, stored.kv_head, tile * kTileTokens);
  }
  // The exact rows of the page that holds `tile`, or null.
  const std::byte* exact_page(int32_t tile) const {
    if (page_rows != nullptr) return page_rows[tile * kTileTokens / stored.cache->page_tokens];
    return stored.cache->exact_page(stored.layer, stored.kv_head,
                                    stored.pages[tile * kTileTokens / stored.cache->page_tokens]);
  }
  bool dithered() const { return radius != kv::RadiusKind::kWitness; }
};

}  // namespace assay
