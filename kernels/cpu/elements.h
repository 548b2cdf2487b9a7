// Stored 16-bit elements as distinct types, so that overloads and templates can tell them apart.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/core/dtype.h"

namespace assay {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float element_to_f32(float value) {
  return value;
}
inline float element_to_f32(Bf16 value) {
  return bf16_to_f32(value.bits);
}
inline float element_to_f32(F16 value) {
  return f16_to_f32(value.bits);
}

// Calls body with `data` as a pointer to its element type.
template <class Body>
auto with_elements(DType dtype, const void* data, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(static_cast<const float*>(data));
    case DType::kBF16:
      return body(static_cast<const Bf16*>(data));
    case DType::kF16:
      return body(static_cast<const F16*>(data));
  }
  std::abort();
}

}  // namespace assay
