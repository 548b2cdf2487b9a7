// One step over stored rows in fragment order: up to kMaxStepTiles tiles of certified or witcert records. Included once
// per Highway target; a target without vectors has none of it.
#if defined(ASSAY_KERNELS_CPU_POOL_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_POOL_STEP_INL_H_
#undef ASSAY_KERNELS_CPU_POOL_STEP_INL_H_
#else
#define ASSAY_KERNELS_CPU_POOL_STEP_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/fragments-inl.h"
#include "kernels/cpu/integer_products-inl.h"
#include "kernels/cpu/load-inl.h"
#include "kernels/cpu/pool_problem.h"
#include "kernels/cpu/pool_softmax-inl.h"
#include "kernels/kv/fragment_order.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_AVX3
inline bool has_integer_products() {
  return false;
}
#endif

// Sixteen stored numbers as floats, from token order to side order.
template <class T>
HWY_INLINE void load_in_side_order(const T* from, float* to) {
  const TileTag d;
  HWY_ALIGN float by_token[16];
  for (int i = 0; i < 16; i += kLanes) hn::Store(load_f32(d, from + i), d, by_token + i);
  for (int j = 0; j < 4; ++j) {
    std::memcpy(to + 4 * j, by_token + 2 * j, 8);
    std::memcpy(to + 4 * j + 2, by_token + 2 * j + 8, 8);
  }
}
HWY_INLINE void load_halves(const std::byte* from, float* to) {
  const TileTag d;
  const F16* halves = reinterpret_cast<const F16*>(from);
  for (int i = 0; i < 16; i += kLanes) hn::Store(load_f32(d, halves + i), d, to + i);
}
HWY_INLINE const F16* as_halves(const std::byte* from) {
  return reinterpret_cast<const F16*>(from);
}

// Calls `body(i)` with the index of every token from `count` on in side order.
template <class Body>
HWY_INLINE void for_tail(int32_t count, const Body& body) {
  for (int32_t i = 0; count < kTileTokens && i < kTileTokens; ++i) {
    if (2 * (i / 4) + i % 2 + i % 4 / 2 * 8 >= count) body(i);
  }
}

// The side numbers of one tile into place `at` of the step.
class SideLoader {
 public:
  SideLoader(const PoolBlock& b, const std::byte* record, int32_t at)
      : b_(b), side_(b.side), record_(record), at_(at), dim_(b.stored.head_dim) {}

  void load(int32_t count) const {
    std::fill_n(side_.masked + at_, kTileTokens, 0.0f);
    if (b_.stored.cache->format == KvFormat::kCertified)
      load_certified();
    else
      load_witcert();
    // What lies beyond the sequence is older than it.
    for_tail(count, [&](int32_t i) {
      side_.masked[at_ + i] = -std::numeric_limits<float>::infinity();
      side_.witness[at_ + i] = side_.rho[at_ + i] = side_.dither_norm[at_ + i] = 0.0f;
      for (int32_t g = 0; g < b_.groups; ++g) group(side_.scale, g)[i] = group(side_.value_scale, g)[i] = 0.0f;
      for (int32_t c = 0; c < b_.bypass_count; ++c) group(side_.bypass, c)[i] = 0.0f;
    });
  }

 private:
  float* group(float* array, int32_t g) const { return array + g * kMaxStepTokens + at_; }

  void load_certified() const {
    load_in_side_order(as_halves(record_ + CertifiedRecord::k_scales(dim_)), side_.scale + at_);
    load_in_side_order(as_halves(record_ + CertifiedRecord::witness(dim_)), side_.witness + at_);
    load_halves(record_ + CertifiedRecord::v_scales(dim_), side_.value_scale + at_);
    load_halves(record_ + CertifiedRecord::rho(dim_), side_.rho + at_);
    if (!b_.dithered()) return;
    const TileTag d;
    const auto infinite = hn::Set(d, kv::infinity()), root = hn::Set(d, std::sqrt(static_cast<float>(dim_)));
    for (int32_t i = at_; i < at_ + kTileTokens; i += kLanes) {
      const auto exact_only = hn::Eq(hn::Load(d, side_.witness + i), infinite);
      hn::Store(hn::IfThenElse(exact_only, infinite, hn::Mul(root, hn::Load(d, side_.scale + i))), d,
                side_.dither_norm + i);
    }
  }

  // Norm of the steps of 32 channels each; an infinite scale (exact-only) becomes 0 and makes the norm infinite.
  void load_group_scales(int64_t offset, bool token_order, float* scales, float* norms) const {
    const TileTag d;
    const auto infinite = hn::Set(d, kv::infinity());
    for (int32_t i = 0; i < kTileTokens; i += kLanes) hn::Store(hn::Zero(d), d, norms + at_ + i);
    for (int32_t g = 0; g < b_.groups; ++g) {
      const std::byte* from = record_ + offset + g * kTileTokens * 2;
      float* to = group(scales, g);
      if (token_order)
        load_in_side_order(as_halves(from), to);
      else
        load_halves(from, to);
      for (int32_t i = 0; i < kTileTokens; i += kLanes) {
        const auto s = hn::Load(d, to + i);
        hn::Store(hn::MulAdd(hn::Mul(s, hn::Set(d, 32.0f)), s, hn::Load(d, norms + at_ + i)), d, norms + at_ + i);
        hn::Store(hn::IfThenZeroElse(hn::Eq(s, infinite), s), d, to + i);
      }
    }
    for (int32_t i = at_; i < at_ + kTileTokens; i += kLanes) hn::Store(hn::Sqrt(hn::Load(d, norms + i)), d, norms + i);
  }

  void load_witcert() const {
    const TileTag d;
    load_group_scales(WitcertRecord::k_scales(dim_), true, side_.scale, side_.dither_norm);
    load_group_scales(WitcertRecord::v_scales(dim_), false, side_.value_scale, side_.rho);
    const auto half = hn::Set(d, 0.5f * (1.0f + 0x1p-15f));  // as kv::group_value_radius
    for (int32_t i = at_; i < at_ + kTileTokens; i += kLanes) {
      hn::Store(hn::Mul(half, hn::Load(d, side_.rho + i)), d, side_.rho + i);
      hn::Store(hn::Zero(d), d, side_.witness + i);
    }
    if (b_.bypass_count == 0) return;
    with_elements(b_.stored.cache->dtype, record_ + WitcertRecord::bypass(dim_), [&](const auto* elements) {
      for (int32_t c = 0; c < b_.bypass_count; ++c)
        load_in_side_order(elements + c * kTileTokens, group(side_.bypass, c));
    });
  }

  const PoolBlock& b_;
  const StepSide& side_;
  const std::byte* record_;
  const int32_t at_, dim_;
};

// The records of the next step, asked for a few lines at a time while this one is computed: pages lie anywhere, so the
// hardware cannot guess, and requests that queue up would block its own reads. Into the second-level cache, since two
// steps are more than the first one holds.
class NextRecords {
 public:
  void add(const std::byte* record, int64_t bytes) {
    records_[count_++] = record;
    bytes_ = bytes;
  }
  // `asks`: calls of ask() to come.
  void spread(int32_t asks) {
    const int64_t lines = count_ * ((bytes_ + 63) / 64);
    lines_ = static_cast<int32_t>((lines + asks - 1) / asks);
  }
  HWY_INLINE void ask() {
    for (int32_t i = 0; i < lines_; ++i) {
      if (at_ >= bytes_) {
        at_ = 0;
        ++record_;
      }
      if (record_ >= count_) return;
      __builtin_prefetch(records_[record_] + at_, 0, 2);
      at_ += 64;
    }
  }

 private:
  const std::byte* records_[kMaxStepTiles] = {};
  int32_t count_ = 0, record_ = 0, lines_ = 0;
  int64_t bytes_ = 0, at_ = 0;
};

// All records of `count` tiles at once.
HWY_INLINE void ask_for_tiles(const PoolBlock& b, const int32_t* tiles, int32_t count) {
  NextRecords records;
  for (int32_t i = 0; i < count; ++i) records.add(b.record(tiles[i]), b.stored.cache->record_bytes);
  records.spread(1);
  records.ask();
}

// One step over the first of tiles[count]; tiles[known] are those that will be needed.
class FragmentStep {
 public:
  FragmentStep(const PoolBlock& b, const int32_t* tiles, int32_t count, int32_t known) : b_(b), tile_(tiles) {
    tiles_ = std::min(b.step_tiles, count);
    const int32_t next = std::min(b.step_tiles, known - tiles_);
    for (int32_t i = 0; i < tiles_; ++i) records_[i] = b.record(tiles[i]);
    for (int32_t i = 0; i < next; ++i) next_.add(b.record(tiles[tiles_ + i]), b.stored.cache->record_bytes);
    grouped_ = b.stored.cache->format == KvFormat::kWitcert;
    const int32_t blocks = b.stored.head_dim / 32;
    next_.spread(tiles_ * (b.integers && !grouped_ ? 8 : 8 / kScoreRows) + blocks * (b.integers ? 8 : 8 / kSumRows));
  }

  void run(const PoolState& state) {
    for (int32_t i = 0; i < tiles_; ++i) score(i);
    for (int32_t pair = 0; pair < b_.stored.pairs; ++pair) softmax(pair, state);
    for_pair_groups(b_.stored.pairs, [&]<int P>(int32_t pair) {
      for (int32_t g = 0; g < b_.groups; ++g) accumulate<P>(pair, g, state);
    });
  }
  int32_t tiles() const { return tiles_; }

 private:
  void score(int32_t i) {
    const int32_t at = i * kTileTokens;
    SideLoader(b_, records_[i], at).load(b_.stored_tokens - tile_[i] * kTileTokens);
    const uint8_t* k = reinterpret_cast<const uint8_t*>(records_[i]);
    if (grouped_)
      score_floats<true>(k, at);
    else
      score_plain(k, at);
    if (b_.stored.cache->tables.dither_stream == DitherStream::kPerSlot) {
      pool_load_dither_dots(b_, tile_[i] * kTileTokens, kTileTokens);
    }
    finish_scores(tile_[i], at);
  }

  void score_plain(const uint8_t* k, int32_t at) {
#if HWY_TARGET == HWY_AVX3
    if (b_.integers) {
      return for_pair_groups(b_.stored.pairs, [&]<int P>(int32_t pair) {
        score_integer_tile<P>(b_, k, pair, b_.scores + pair * kMaxStepTokens + at, [this] { next_.ask(); });
      });
    }
#endif
    score_floats<false>(k, at);
  }

  template <bool kGrouped>
  void score_floats(const uint8_t* k, int32_t at) {
    HWY_ALIGN float lane_scales[kGrouped ? kv::kMaxHeadDim / 32 * 8 * 16 : 1];
    if constexpr (kGrouped) {
      for (int32_t g = 0; g < b_.groups; ++g)
        spread_scales(b_.side.scale + g * kMaxStepTokens + at, lane_scales + g * 128);
    }
    for (int row = 0; row < 8; row += kScoreRows) {
      for_pair_groups(b_.stored.pairs, [&]<int P>(int32_t pair) {
        score_fragment_rows<P, kGrouped>(b_, k, lane_scales, pair, row, b_.scores + pair * kMaxStepTokens + at);
      });
      next_.ask();
    }
  }

  // Scales of a tile in side order -> [8][16] as the bytes of tokens r and r + 8 lie in a piece.
  static void spread_scales(const float* scales, float* lanes) {
    for (int r = 0; r < 8; ++r) {
      const float* pair = scales + r / 2 * 4 + r % 2;
      for (int i = 0; i < 16; ++i) lanes[r * 16 + i] = pair[i % 8 / 4 * 2];
    }
  }

  // Raw scores of a tile become logits: scale, dither, bypassed channels.
  HWY_INLINE void finish_scores(int32_t tile, int32_t at) {
    const TileTag d;
    const int32_t dots_at = tile % (kDitherTokens / kTileTokens) * kTileTokens;
    for (int32_t pair = 0; pair < b_.stored.pairs; ++pair) {
      const auto scale = hn::Set(d, b_.terms.scale[pair]);
      const float* dots = b_.terms.dither_dots + pair * b_.groups * kDitherTokens + dots_at;
      float* scores = b_.scores + pair * kMaxStepTokens + at;
      for (int32_t i = 0; i < kTileTokens; i += kLanes) {
        auto s = hn::Mul(hn::Load(d, scores + i), scale);
        if (!grouped_) {
          if (b_.dithered()) s = hn::Sub(s, hn::Load(d, dots + i));
          s = hn::Mul(s, hn::Load(d, b_.side.scale + at + i));
        } else {
          for (int32_t g = 0; g < b_.groups; ++g) {
            s = hn::NegMulAdd(hn::Load(d, b_.side.scale + g * kMaxStepTokens + at + i),
                              hn::Load(d, dots + g * kDitherTokens + i), s);
          }
          s = hn::Add(s, bypassed(pair, at + i));
        }
        hn::Store(s, d, scores + i);
      }
    }
  }

  // Products of the channels stored apart; their radius goes to bypass_radii.
  HWY_INLINE V bypassed(int32_t pair, int32_t i) const {
    const TileTag d;
    auto sum = hn::Zero(d), absolute = hn::Zero(d);
    for (int32_t c = 0; c < b_.bypass_count; ++c) {
      const auto product = hn::Mul(hn::Set(d, b_.terms.bypass_query[pair * b_.bypass_count + c]),
                                   hn::Load(d, b_.side.bypass + c * kMaxStepTokens + i));
      sum = hn::Add(sum, product);
      absolute = hn::Add(absolute, hn::Abs(product));
    }
    const float margin = kv::bypass_radius(1.0f, 1.0f, b_.stored.head_dim);
    hn::Store(hn::Mul(absolute, hn::Set(d, margin)), d, b_.bypass_radii + pair * kMaxStepTokens + i);
    return sum;
  }

  // kv::dither_radius, with the pair's part of it taken out of the sums.
  HWY_INLINE V dither_radius(int32_t pair, int32_t i) const {
    const TileTag d;
    auto variance = hn::Zero(d);
    auto radius = hn::Mul(hn::Set(d, b_.terms.dither_norm[pair]), hn::Load(d, b_.side.dither_norm + i));
    for (int32_t g = 0; g < b_.groups; ++g) {
      const auto s = hn::Load(d, b_.side.scale + g * kMaxStepTokens + i);
      variance = hn::MulAdd(hn::Mul(hn::Set(d, b_.terms.dither_variance[pair * b_.groups + g]), s), s, variance);
      radius = hn::MulAdd(hn::Set(d, b_.terms.dither_bias[pair * b_.groups + g]), s, radius);
    }
    radius = hn::Add(radius, hn::Sqrt(variance));
    if (b_.bypass_count > 0) radius = hn::Add(radius, hn::Load(d, b_.bypass_radii + pair * kMaxStepTokens + i));
    return radius;
  }

  void softmax(int32_t pair, const PoolState& state) {
    const TileTag d;
    const auto witness = [&](int32_t i) {
      return hn::Mul(hn::Set(d, b_.terms.factor[pair]), hn::Load(d, b_.side.witness + i));
    };
    const auto step = [&](const auto& radii) {
      b_.stored.decay[pair] =
          softmax_step(b_.side, tiles_ * kTileTokens, b_.metered[pair] != 0, b_.radius == kv::RadiusKind::kBoth, radii,
                       b_.scores + pair * kMaxStepTokens, state.max + pair, state.sums + pair * kPairSumFloats);
      if (b_.log != nullptr) log(pair, state.max[pair], radii);
    };
    if (b_.radius == kv::RadiusKind::kWitness) return step([&](int32_t i) { return Radii{witness(i), witness(i)}; });
    if (b_.radius == kv::RadiusKind::kDither) {
      return step([&](int32_t i) { return Radii{dither_radius(pair, i), hn::Zero(d)}; });
    }
    step([&](int32_t i) { return Radii{witness(i), hn::Min(witness(i), dither_radius(pair, i))}; });
  }

  template <class RadiiOf>
  void log(int32_t pair, float max, const RadiiOf& radii) const {
    for (int32_t tile = 0; tile < tiles_; ++tile) {
      const int32_t first = tile_[tile] * kTileTokens, from = tile * kTileTokens;
      int32_t at[kTileTokens];
      for (int32_t t = 0; t < kTileTokens; ++t) {
        at[kv::value_side_index(t)] = first + t < b_.stored_tokens ? first + t : -1;
      }
      log_tile(*b_.log, pair, at, b_.scores + pair * kMaxStepTokens + from, max, b_.side.rho + from,
               [&](int32_t i) { return radii(from + i); });
    }
  }

  // Weighted sums of the channels of group g, for P pairs.
  template <int P>
  void accumulate(int32_t pair, int32_t g, const PoolState& state) {
    const TileTag d;
    for (int p = 0; p < P; ++p) {
      for (int32_t i = 0; i < tiles_ * kTileTokens; i += kLanes) {
        const auto scale = hn::Load(d, b_.side.value_scale + g * kMaxStepTokens + i);
        hn::Store(hn::Mul(hn::Load(d, b_.scores + (pair + p) * kMaxStepTokens + i), scale), d,
                  b_.weights + p * kMaxStepTokens + i);
      }
    }
    const uint8_t* v[kMaxStepTiles];
    for (int32_t i = 0; i < tiles_; ++i) {
      v[i] = reinterpret_cast<const uint8_t*>(records_[i]) + CertifiedRecord::v_payload(b_.stored.head_dim);
    }
    const int32_t blocks = b_.stored.head_dim / 32 / b_.groups, first = g * blocks;
#if HWY_TARGET == HWY_AVX3
    if (b_.integers) {
      const IntegerWeights<P> w(b_, tiles_);
      for (int p = 0; p < P; ++p) {
        state.sums[(pair + p) * kPairSumFloats + kValueError * 16] +=
            weight_rounding_error(w.largest[p], tiles_ * kTileTokens, blocks * 32);
      }
      for (int32_t block = first; block < first + blocks; ++block) {
        accumulate_integer_block<P>(b_, w, v, tiles_, pair, block, state.acc, [this] { next_.ask(); });
      }
      return;
    }
#endif
    for (int32_t block = first; block < first + blocks; ++block) {
      for (int row = 0; row < 8; row += kSumRows) {
        accumulate_fragment_rows<P>(b_, v, tiles_, pair, block, row, state.acc);
        next_.ask();
      }
    }
  }

  const PoolBlock& b_;
  const int32_t* tile_;
  bool grouped_ = false;
  int32_t tiles_ = 0;
  const std::byte* records_[kMaxStepTiles] = {};
  NextRecords next_;
};

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();
#endif  // HWY_SCALAR

#endif
