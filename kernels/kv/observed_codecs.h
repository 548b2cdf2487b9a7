// The schemes a pool can *observe*: common quantisers of other servers, each a pair of plain functions over one tile of
// rows, with its size. None of them carries a bound; the pool stores a band witness of the keys and rho of the values
// beside them (radius.h), computed from what decode returns.
//
//   int64_t X_bytes(tile)                    bytes of one encoded tile
//   void    X_encode(tile, rows, out)        rows[tokens][head_dim] -> out[X_bytes]
//   void    X_decode(tile, in, rows)         back
//
// A group that is not finite, or too large for fp16 parameters, decodes to zeros (fp8 and kept-exact elements keep a
// NaN): its witness is then infinite or huge. head_dim: a power of two, 16 to kMaxHeadDim. No errors, no allocation.
//
// A new scheme is a file in kernels/kv/schemes and a line in kObservedSchemes.
#pragma once

#include "kernels/kv/schemes/fp8_e4m3.h"
#include "kernels/kv/schemes/identity.h"
#include "kernels/kv/schemes/kivi_2.h"
#include "kernels/kv/schemes/kvquant_4.h"
#include "kernels/kv/schemes/rtn.h"
#include "kernels/kv/schemes/rtn_int8_tensor.h"
#include "kernels/kv/schemes/stochastic_int8.h"

namespace assay::kv {

struct ObservedScheme {
  const char* name;
  const char* dtype;  // of what it stores; null = the model's
  // kTokenTile: each token is encoded alone, its bytes lie in a row. kChannelTile: a tile is encoded when it is whole.
  int tile_tokens;
  const char* granularity;   // of the scales: none, token, group, channel, tensor
  const char* scale_source;  // none, row, calibration
  int64_t (*bytes)(const TileContext& tile);
  void (*encode)(const TileContext& tile, const float* rows, uint8_t* out);
  void (*decode)(const TileContext& tile, const uint8_t* in, float* rows);
};

inline constexpr ObservedScheme kObservedSchemes[] = {
    {"rtn-int8", "int8", kTokenTile, "group", "row", rtn_int8_bytes, rtn_int8_encode, rtn_int8_decode},
    {"rtn-int8-tensor", "int8", kTokenTile, "tensor", "calibration", rtn_int8_tensor_bytes, rtn_int8_tensor_encode,
     rtn_int8_tensor_decode},
    {"fp8-e4m3", "fp8", kTokenTile, "none", "none", fp8_e4m3_bytes, fp8_e4m3_encode, fp8_e4m3_decode},
    {"rtn-int4", "int4", kTokenTile, "group", "row", rtn_int4_bytes, rtn_int4_encode, rtn_int4_decode},
    {"kivi-2", "int2", kChannelTile, "channel", "row", kivi_2_bytes, kivi_2_encode, kivi_2_decode},
    {"kvquant-4", "int4", kChannelTile, "channel", "row", kvquant_4_bytes, kvquant_4_encode, kvquant_4_decode},
    {"stochastic-int8", "int8", kTokenTile, "group", "row", stochastic_int8_bytes, stochastic_int8_encode,
     stochastic_int8_decode},
    {"identity", nullptr, kTokenTile, "none", "none", identity_bytes, identity_encode, identity_decode},
};

}  // namespace assay::kv
