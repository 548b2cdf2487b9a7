#include "kernels/cpu/pool_kernels.h"

#include <algorithm>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/tile_decoder.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool_kernels.cc"
// clang-format off: foreach_target.h comes first
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/pool_softmax-inl.h"
#include "kernels/cpu/pool_step-inl.h"
#include "kernels/cpu/rotate-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

void run_decoded_tile(const PoolBlock& b, int32_t tile, const PoolState& state) {
  decode_tile(b, tile);
  run_float_tile(
      b, b.stored, tile, tile * kTileTokens,
      [&](int32_t pair, int32_t i) {
        const TileTag d;
        const float* radii = b.tile_radii + pair * 2 * kTileTokens + i;
        return Radii{hn::Load(d, radii), hn::Load(d, radii + kTileTokens)};
      },
      state);
}

void RunStoredTilesKernel(const PoolBlock& b, int32_t begin, int32_t end, const PoolState& state) {
  int32_t tiles[kSplitTokens / kTileTokens + kMaxStepTiles], count = 0;
  for (int32_t tile = begin; tile < end; ++tile) {
    if (b.exact_page(tile) == nullptr) tiles[count++] = tile;
  }
#if HWY_TARGET != HWY_SCALAR
  if (b.fragments) {
    int32_t known = count;  // with those of the next split, which are asked for by the last step of this one
    for (int32_t tile = end; tile * kTileTokens < b.stored_tokens && known < count + b.step_tiles; ++tile) {
      if (b.exact_page(tile) == nullptr) tiles[known++] = tile;
    }
    if (begin == 0) ask_for_tiles(b, tiles, std::min(count, b.step_tiles));
    for (int32_t done = 0; done < count;) {
      FragmentStep step(b, tiles + done, count - done, known - done);
      step.run(state);
      done += step.tiles();
    }
    return;
  }
#endif
  for (int32_t i = 0; i < count; ++i) run_decoded_tile(b, tiles[i], state);
}

// Rows of a tile of an exact page as floats.
HWY_INLINE void load_exact_tile(const PoolBlock& b, const std::byte* page, int32_t tile) {
  const PagedKvView& cache = *b.stored.cache;
  const int32_t dim = cache.head_dim, first = tile * kTileTokens % cache.page_tokens;
  with_elements(cache.dtype, page, [&](const auto* rows) {
    for (int32_t side = 0; side < 2; ++side) {
      const auto* from = rows + (int64_t{side} * cache.page_tokens + first) * dim;
      convert_to_f32(from, static_cast<size_t>(dim * kTileTokens), b.exact_rows + side * dim * kTileTokens);
    }
  });
}

void RunExactPagesKernel(const PoolBlock& b, const PoolState& state) {
  AttentionBlock a = b.own;
  a.first_position = b.stored_tokens - 1;  // every row sees all of them
  a.group = a.pairs;
  std::fill_n(b.side.rho, kTileTokens, 0.0f);
  for (int32_t tile = 0; tile * kTileTokens < b.stored_tokens; ++tile) {
    const std::byte* page = b.exact_page(tile);
    if (page == nullptr) continue;
    load_exact_tile(b, page, tile);
    const int32_t rows = std::min(kTileTokens, b.stored_tokens - tile * kTileTokens);
    run_exact_tile(b, a, tile, tile * kTileTokens, b.exact_rows, b.exact_rows + a.head_dim * kTileTokens, a.head_dim,
                   rows, state);
  }
}

void RunOwnRowsKernel(const PoolBlock& b, const float* k, const float* v, int64_t stride, int32_t count,
                      const PoolState& state) {
  std::fill_n(b.side.rho, kTileTokens, 0.0f);
  for (int32_t tile = 0; tile * kTileTokens < count; ++tile) {
    const int64_t first = int64_t{tile} * kTileTokens * stride;
    run_exact_tile(b, b.own, tile, b.stored_tokens + tile * kTileTokens, k + first, v + first, stride,
                   std::min(kTileTokens, count - tile * kTileTokens), state);
  }
}

bool ReadsFragmentsKernel(int32_t head_dim) {
  return HWY_TARGET != HWY_SCALAR && kv::has_fragment_order(head_dim);
}

bool HasIntegerProductsKernel() {
#if HWY_TARGET != HWY_SCALAR
  return has_integer_products();
#else
  return false;
#endif
}

void TransformQueryKernel(const kv::RowTransform& t, const float* row, float* out) {
  transform_row(t, RowRole::kQuery, row, out);
}

float NormUpKernel(const float* x, int32_t dim) {
  return row_norm_up(x, dim);
}

float LoadIntegerQueryKernel(const float* q, int32_t head_dim, int8_t* digits, int32_t* start) {
#if HWY_TARGET == HWY_AVX3
  return load_integer_query(q, head_dim, digits, start);
#else
  static_cast<void>(q), static_cast<void>(head_dim), static_cast<void>(digits), static_cast<void>(start);
  return 0.0f;
#endif
}

void RotateBackKernel(const float* signs, float* x, int32_t head_dim) {
  rotate_row_back(signs, x, head_dim);
}

void AddDitherProductsKernel(const float* q, const float* columns, int32_t channels, int32_t count, float* sums) {
  const TileTag d;
  for (int32_t i = 0; i < count; i += kLanes) {
    auto sum = hn::LoadU(d, sums + i);
    for (int32_t c = 0; c < channels; ++c)
      sum = hn::MulAdd(hn::Set(d, q[c]), hn::LoadU(d, columns + c * count + i), sum);
    hn::StoreU(sum, d, sums + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(RunStoredTilesKernel);
HWY_EXPORT(RunExactPagesKernel);
HWY_EXPORT(RunOwnRowsKernel);
HWY_EXPORT(ReadsFragmentsKernel);
HWY_EXPORT(HasIntegerProductsKernel);
HWY_EXPORT(TransformQueryKernel);
HWY_EXPORT(NormUpKernel);
HWY_EXPORT(LoadIntegerQueryKernel);
HWY_EXPORT(RotateBackKernel);
HWY_EXPORT(AddDitherProductsKernel);

bool pool_reads_fragments(int32_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(ReadsFragmentsKernel)(head_dim);
}
bool pool_has_integer_products() {
  return HWY_DYNAMIC_DISPATCH(HasIntegerProductsKernel)();
}
void pool_run_stored_tiles(const PoolBlock& b, int32_t begin, int32_t end, const PoolState& state) {
  HWY_DYNAMIC_DISPATCH(RunStoredTilesKernel)(b, begin, end, state);
}
void pool_run_exact_pages(const PoolBlock& b, const PoolState& state) {
  HWY_DYNAMIC_DISPATCH(RunExactPagesKernel)(b, state);
}
void pool_run_own_rows(const PoolBlock& b, const float* k, const float* v, int64_t stride, int32_t count,
                       const PoolState& state) {
  HWY_DYNAMIC_DISPATCH(RunOwnRowsKernel)(b, k, v, stride, count, state);
}
void pool_transform_query(const kv::RowTransform& t, const float* query, float* out) {
  HWY_DYNAMIC_DISPATCH(TransformQueryKernel)(t, query, out);
}
float pool_norm_up(const float* x, int32_t dim) {
  return HWY_DYNAMIC_DISPATCH(NormUpKernel)(x, dim);
}
float pool_load_integer_query(const float* q, int32_t head_dim, int8_t* digits, int32_t* start) {
  return HWY_DYNAMIC_DISPATCH(LoadIntegerQueryKernel)(q, head_dim, digits, start);
}
void pool_rotate_back(const float* signs, float* x, int32_t head_dim) {
  HWY_DYNAMIC_DISPATCH(RotateBackKernel)(signs, x, head_dim);
}
void pool_add_dither_products(const float* q, const float* columns, int32_t channels, int32_t count, float* sums) {
  HWY_DYNAMIC_DISPATCH(AddDitherProductsKernel)(q, columns, channels, count, sums);
}

}  // namespace assay
#endif  // HWY_ONCE
