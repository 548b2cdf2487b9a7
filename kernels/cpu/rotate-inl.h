// The rotation of row_transform.h with vectors: the same sums in the same order, so the same bits. Included once per
// Highway target.
#if defined(ASSAY_KERNELS_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_ROTATE_INL_H_
#undef ASSAY_KERNELS_CPU_ROTATE_INL_H_
#else
#define ASSAY_KERNELS_CPU_ROTATE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/kv/row_transform.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowTag = hn::CappedTag<float, 16>;  // head_dim is a multiple of 16
constexpr int kRowLanes = static_cast<int>(hn::MaxLanes(RowTag()));

// Stages narrower than a vector: each lane and its partner `width` lanes away, sum in the lower, difference in the
// upper one.
template <int kWidth>
HWY_INLINE void hadamard_within(float* x, int head_dim) {
  if constexpr (kWidth < kRowLanes) {
    const RowTag d;
    HWY_ALIGN int32_t partner[kRowLanes];
    HWY_ALIGN float upper[kRowLanes];
    for (int i = 0; i < kRowLanes; ++i) {
      partner[i] = i ^ kWidth;
      upper[i] = (i & kWidth) != 0 ? 1.0f : 0.0f;
    }
    const auto indices = hn::SetTableIndices(d, partner);
    const auto is_upper = hn::Gt(hn::Load(d, upper), hn::Zero(d));
    for (int i = 0; i < head_dim; i += kRowLanes) {
      const auto v = hn::LoadU(d, x + i), w = hn::TableLookupLanes(v, indices);
      hn::StoreU(hn::IfThenElse(is_upper, hn::Sub(w, v), hn::Add(v, w)), d, x + i);
    }
  }
}

HWY_INLINE void hadamard_rows(float* x, int head_dim) {
  const RowTag d;
  hadamard_within<1>(x, head_dim);
  hadamard_within<2>(x, head_dim);
  hadamard_within<4>(x, head_dim);
  hadamard_within<8>(x, head_dim);
  for (int width = kRowLanes; width < head_dim; width *= 2) {
    for (int block = 0; block < head_dim; block += 2 * width) {
      for (int i = block; i < block + width; i += kRowLanes) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + width);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + width);
      }
    }
  }
}

HWY_INLINE void rotate_row(const float* signs, float* x, int head_dim) {
  const RowTag d;
  for (int i = 0; i < head_dim; i += kRowLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, signs + i)), d, x + i);
  }
  hadamard_rows(x, head_dim);
  const auto norm = hn::Set(d, kv::rotation_norm(head_dim));
  for (int i = 0; i < head_dim; i += kRowLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), norm), d, x + i);
}

HWY_INLINE void rotate_row_back(const float* signs, float* x, int head_dim) {
  const RowTag d;
  hadamard_rows(x, head_dim);
  const auto norm = hn::Set(d, kv::rotation_norm(head_dim));
  for (int i = 0; i < head_dim; i += kRowLanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), norm), hn::LoadU(d, signs + i)), d, x + i);
  }
}

enum class RowRole { kKey, kQuery, kValue };

// transform_key, transform_query or transform_value of row_transform.h. out[head_dim].
HWY_INLINE void transform_row(const kv::RowTransform& t, RowRole role, const float* row, float* out) {
  const RowTag d;
  for (int i = 0; i < t.head_dim; i += kRowLanes) hn::StoreU(hn::LoadU(d, row + i), d, out + i);
  if (role != RowRole::kValue) {
    for (int i = 0; i < t.bypass_count; ++i) out[t.bypass[i]] = 0.0f;
    for (int i = 0; t.lambda != nullptr && i < t.head_dim; i += kRowLanes) {
      const auto x = hn::LoadU(d, out + i), lambda = hn::LoadU(d, t.lambda + i);
      hn::StoreU(role == RowRole::kKey ? hn::Div(x, lambda) : hn::Mul(x, lambda), d, out + i);
    }
  }
  if (t.signs != nullptr) rotate_row(t.signs, out, t.head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif
