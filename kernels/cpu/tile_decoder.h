// Stored tiles back as floats, for pools and head sizes that attention does not read in fragment order.
#pragma once

#include "kernels/cpu/pool_attention_state.h"

namespace assay {

// Fills k_tile, v_tile of b.stored and witness, rho of b.side (16 tokens, token order) from a stored tile; zeros for
// tokens the sequence does not have.
void decode_tile(const PoolBlock& b, int32_t tile);

}  // namespace assay
