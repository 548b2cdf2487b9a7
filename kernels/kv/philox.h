// The counter-based generator behind everything random in the cache, and the dither drawn from it.
// Philox4x32-10: a pure function of a 64-bit key and a 128-bit counter, so the same number is found at write and read
// time, on any device, in any order. Pure functions, no state.
#pragma once

#include "kernels/kv/float_bits.h"

namespace assay::kv {

struct PhiloxBlock {
  uint32_t word[4];
};

// Ten rounds of Philox4x32. key[0] is the low half of a 64-bit seed.
ASSAY_HOST_DEVICE PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = PhiloxBlock{{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(b),
                           static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Streams that must never share a counter.
enum class RandomStream : uint32_t { kDither = 0, kRotationSigns = 1, kStochasticRounding = 2 };

// One 32-bit draw. `layer` < 2^24; `kv_head` is the *global* KV head, so that the draw does not depend on the number of
// tensor-parallel ranks; `row` is a slot, or a slot modulo the table's period.
ASSAY_HOST_DEVICE uint32_t random_word(RandomStream stream, uint64_t seed, uint32_t layer, uint32_t kv_head,
                                       uint32_t row, uint32_t channel) {
  const PhiloxBlock counter{{channel >> 2, row, kv_head, layer | (static_cast<uint32_t>(stream) << 24)}};
  const PhiloxBlock drawn = philox4x32_10(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return drawn.word[channel & 3u];
}

constexpr int kDitherBits = 12;
constexpr uint32_t kDitherPeriod = 64;              // rows of the periodic table, P
constexpr float kDitherLattice = 0x1p-12f;          // h: spacing of the values
constexpr float kDitherBias = 0x1p-13f + 0x1p-17f;  // largest |mean| of residual / scale: lattice, fp32 write path

// The 12-bit integer j as dither: j 2^-12 - 1/2, in [-1/2, 1/2); exact in float and in fp16. The integer is drawn and
// then converted: a 32-bit word converted to float first can round to +1/2.
ASSAY_HOST_DEVICE float dither_from_word(uint32_t word) {
  return static_cast<float>(word >> (32 - kDitherBits)) * kDitherLattice - 0.5f;
}

// Dither of one channel. Periodic table: row = slot % kDitherPeriod. Per-slot stream: row = slot.
ASSAY_HOST_DEVICE float dither_at(uint64_t seed, uint32_t layer, uint32_t kv_head, uint32_t row, uint32_t channel) {
  return dither_from_word(random_word(RandomStream::kDither, seed, layer, kv_head, row, channel));
}

// Fills xi[head_dim] with one row of dither. head_dim is a multiple of 4.
ASSAY_HOST_DEVICE void dither_row(uint64_t seed, uint32_t layer, uint32_t kv_head, uint32_t row, int head_dim,
                                  float* xi) {
  for (int block = 0; 4 * block < head_dim; ++block) {
    const PhiloxBlock counter{{static_cast<uint32_t>(block), row, kv_head, layer}};
    const PhiloxBlock drawn = philox4x32_10(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    for (int i = 0; i < 4; ++i) xi[4 * block + i] = dither_from_word(drawn.word[i]);
  }
}

}  // namespace assay::kv
