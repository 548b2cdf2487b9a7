#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/elements.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
// clang-format off: foreach_target.h comes first
#include "hwy/foreach_target.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/cpu/load-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void WidenRowKernel(DType dtype, const void* from, size_t count, float* to) {
  with_elements(dtype, from, [&](const auto* elements) { convert_to_f32(elements, count, to); });
}

void RmsNormRowKernel(const float* x, const float* weight, float eps, size_t count, float* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto squares = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    squares = hn::MulAdd(v, v, squares);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, squares));
  for (size_t rest = i; rest < count; ++rest) sum += x[rest] * x[rest];
  const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(count) + eps);
  const auto scale = hn::Set(d, inverse);
  for (i = 0; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), scale), hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < count; ++i) out[i] = x[i] * inverse * weight[i];
}

void SiluMulRowKernel(const float* gate, const float* up, size_t count, float* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0f), largest = hn::Set(d, 88.0f);  // of an exponent: beyond it Exp is undefined
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    const auto sigmoid = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(g), largest))));
    hn::StoreU(hn::Mul(hn::Mul(g, sigmoid), hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < count; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

// head [2 x pairs], in place.
void RotateHeadKernel(const float* cos_sin, size_t pairs, float* head) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const float* sin = cos_sin + pairs;
  size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + pairs + i);
    const auto c = hn::LoadU(d, cos_sin + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + pairs + i);
  }
  for (; i < pairs; ++i) {
    const float a = head[i], b = head[pairs + i];
    head[i] = a * cos_sin[i] - b * sin[i];
    head[pairs + i] = b * cos_sin[i] + a * sin[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
HWY_EXPORT(WidenRowKernel);
HWY_EXPORT(RmsNormRowKernel);
HWY_EXPORT(SiluMulRowKernel);
HWY_EXPORT(RotateHeadKernel);

namespace {

constexpr int64_t kFloatsPerTask = 16 << 10;  // enough work to be worth handing out

// Calls row(r) for every row, several short rows to a task.
template <class Row>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t floats_per_row, const Row& row) {
  const int64_t per_task = std::max<int64_t>(1, kFloatsPerTask / std::max<int64_t>(1, floats_per_row));
  pool.parallel_for((rows + per_task - 1) / per_task, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) row(r);
  });
}

std::vector<float> widened(ConstTensor vector) {
  std::vector<float> floats(static_cast<size_t>(vector.cols));
  HWY_DYNAMIC_DISPATCH(WidenRowKernel)(vector.dtype, vector.data, floats.size(), floats.data());
  return floats;
}

template <class Element>
Element narrow(float value);
template <>
float narrow<float>(float value) {
  return value;
}
template <>
Bf16 narrow<Bf16>(float value) {
  return {f32_to_bf16(value)};
}
template <>
F16 narrow<F16>(float value) {
  return {f32_to_f16(std::clamp(value, -kMaxF16, kMaxF16))};  // keeps NaN
}

template <class Element>
void write_record(const float* k, const float* v, int32_t head_dim, int32_t token, Element* record) {
  Element* k_out = record + ExactRecord::k_index(0, token);
  for (int32_t c = 0; c < head_dim; ++c) k_out[c * kTileTokens] = narrow<Element>(k[c]);
  Element* v_out = record + ExactRecord::v_index(head_dim, 0, token);
  for (int32_t c = 0; c < head_dim; ++c) v_out[c] = narrow<Element>(v[c]);
}

}  // namespace

void cpu_embed(ThreadPool& pool, ConstTensor table, const int32_t* ids, Tensor out) {
  for_each_row(pool, out.rows, out.cols, [&](int64_t r) {
    HWY_DYNAMIC_DISPATCH(WidenRowKernel)
    (table.dtype, table.row(ids[r]), static_cast<size_t>(out.cols), out.f32() + r * out.row_stride);
  });
}

void cpu_gather_rows(ThreadPool& pool, ConstTensor x, const int32_t* rows, Tensor out) {
  for_each_row(pool, out.rows, out.cols, [&](int64_t r) {
    std::memcpy(out.f32() + r * out.row_stride, x.f32() + rows[r] * x.row_stride,
                static_cast<size_t>(out.cols) * sizeof(float));
  });
}

void cpu_rms_norm(ThreadPool& pool, ConstTensor x, ConstTensor weight, float eps, Tensor out) {
  const std::vector<float> scale = widened(weight);
  for_each_row(pool, out.rows, out.cols, [&](int64_t r) {
    HWY_DYNAMIC_DISPATCH(RmsNormRowKernel)
    (x.f32() + r * x.row_stride, scale.data(), eps, scale.size(), out.f32() + r * out.row_stride);
  });
}

void cpu_silu_mul(ThreadPool& pool, ConstTensor gate_up, Tensor out) {
  for_each_row(pool, out.rows, out.cols, [&](int64_t r) {
    const float* gate = gate_up.f32() + r * gate_up.row_stride;
    HWY_DYNAMIC_DISPATCH(SiluMulRowKernel)
    (gate, gate + out.cols, static_cast<size_t>(out.cols), out.f32() + r * out.row_stride);
  });
}

// The angle is rounded to float before the cosine, as in the implementation the checkpoints were trained with.
void cpu_rope_angles(ThreadPool& pool, const BatchView& batch, const RopeView& rope, float* cos_sin) {
  const int32_t pairs = rope.rotary_pairs;
  for_each_row(pool, batch.num_tokens, pairs * 16, [&](int64_t r) {
    float* row = cos_sin + r * 2 * pairs;
    for (int32_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(batch.positions[r]) * rope.inv_freq[i];
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * rope.scale;
      row[pairs + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * rope.scale;
    }
  });
}

void cpu_qk_norm_rope(ThreadPool& pool, const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                      const float* cos_sin, Tensor qkv) {
  const std::vector<float> q_scale = q_norm ? widened(q_norm) : std::vector<float>();
  const std::vector<float> k_scale = k_norm ? widened(k_norm) : std::vector<float>();
  const int32_t heads = shape.num_heads + shape.num_kv_heads;
  const size_t dim = static_cast<size_t>(shape.head_dim), pairs = dim / 2;
  for_each_row(pool, qkv.rows, heads * shape.head_dim, [&](int64_t r) {
    for (int32_t h = 0; h < heads; ++h) {
      float* head = qkv.f32() + r * qkv.row_stride + h * shape.head_dim;
      const std::vector<float>& scale = h < shape.num_heads ? q_scale : k_scale;
      if (!scale.empty()) HWY_DYNAMIC_DISPATCH(RmsNormRowKernel)(head, scale.data(), eps, dim, head);
      HWY_DYNAMIC_DISPATCH(RotateHeadKernel)(cos_sin + static_cast<size_t>(r) * dim, pairs, head);
    }
  });
}

void cpu_kv_write(ThreadPool& pool, int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                  const PagedKvView& cache) {
  const int32_t dim = shape.head_dim;
  for_each_row(pool, batch.num_tokens, 2 * shape.num_kv_heads * dim, [&](int64_t r) {
    const int32_t position = batch.positions[r];
    const float* k = qkv.f32() + r * qkv.row_stride + shape.num_heads * dim;
    const float* v = k + shape.num_kv_heads * dim;
    for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
      std::byte* record = cache.record_of(layer, batch.pages_of(batch.sequences[r]), h, position);
      with_elements(cache.dtype, record, [&]<class Element>(const Element*) {
        write_record(k + h * dim, v + h * dim, dim, position % kTileTokens, reinterpret_cast<Element*>(record));
      });
    }
  });
}

}  // namespace assay
#endif  // HWY_ONCE
