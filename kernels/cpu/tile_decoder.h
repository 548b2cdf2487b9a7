// Stored tiles back as floats, with their radii: for schemes that are only observed, and for pools and head sizes that
// attention does not read in fragment order.
#pragma once

#include "kernels/cpu/pool_attention_state.h"

namespace assay {

// Fills k_tile, v_tile of b.stored, rho of b.side and tile_radii of all pairs (16 tokens, token order) from a stored
// tile; zeros for tokens the sequence does not have.
void decode_tile(const PoolBlock& b, int32_t tile);

}  // namespace assay
