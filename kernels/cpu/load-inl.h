// Vector loads of stored elements as float. Included once per Highway target.
#if defined(ASSAY_KERNELS_CPU_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_KERNELS_CPU_LOAD_INL_H_
#undef ASSAY_KERNELS_CPU_LOAD_INL_H_
#else
#define ASSAY_KERNELS_CPU_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/elements.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const Bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const F16* from) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

// The first `count` < Lanes(d) elements, then zeros.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_f32_tail(D d, const T* from, size_t count) {
  HWY_ALIGN T padded[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; ++i) padded[i] = from[i];
  return load_f32(d, padded);
}

template <class T>
HWY_INLINE void convert_to_f32(const T* from, size_t count, float* to) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_f32(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = element_to_f32(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#endif
