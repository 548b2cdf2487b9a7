// Compiles every header of the certificate as device code: one kernel that calls what kernels will call.
#include "kernels/kv/bounds.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/fragment_order.h"
#include "kernels/kv/observed_codecs.h"

namespace assay::kv {

__global__ void use_everything(const float* key, const float* query, RowTransform transform, int8_t* levels,
                               CertifiedSide* sides, float* out, PageRadius<float>* pages, int count) {
  float x[128], q[128], xi[128];
  transform_key(transform, key, x);
  transform_query(transform, query, q);
  dither_row(1, 2, 3, 4, 128, xi);
  const ArithmeticMargins margins = transform_margins(transform);
  sides[0] = encode_certified_key(x, 128, xi, margins, levels);
  sides[1] = encode_certified_value(x, 128, margins, levels);
  MeterSums<float> sums;
  const float factor = witness_factor(0.088f, norm_up(q, 128), margins);
  add_token(sums, q[0], factor * half_to_float(sides[0].bound), half_to_float(sides[1].bound));
  const Meter<float> m = meter(meter_inputs(merge(sums, sums), 512), BoundKind::kBest, 0x1p-11f);
  sort_by_radius(pages, count);
  out[0] = m.tv + page_worst_case(pages, count, 0.0f) + output_bound(m.tv, 1.0f, value_error(sums, 512));
  out[1] = static_cast<float>(box_bound(1e-3, 0.1)) + static_cast<float>(fires(m, 0.2f));
  out[2] = static_cast<float>(key_fragment_index(1, 2, 128) + value_fragment_index(1, 2, 128));
  const TileContext tile{.head_dim = 128, .tokens = kChannelTile};
  kivi_2_encode(tile, key, reinterpret_cast<uint8_t*>(levels));
  kvquant_4_encode(tile, key, reinterpret_cast<uint8_t*>(levels));
  stochastic_int8_encode(tile, key, reinterpret_cast<uint8_t*>(levels));
  fp8_e4m3_encode(tile, key, reinterpret_cast<uint8_t*>(levels));
  identity_decode(tile, reinterpret_cast<const uint8_t*>(levels), out);
  rotate_back(transform.signs, out, 128);
}

}  // namespace assay::kv
