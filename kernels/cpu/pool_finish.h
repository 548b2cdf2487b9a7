// What follows the tiles: splits merged in order, the stored and the exact part of a row merged, its output, its cell.
//
// Threads: plain functions on the caller's states. Errors: none.
#pragma once

#include "kernels/cpu/pool_problem.h"

namespace assay {

// total = total merged with the next split.
void merge_split(const PoolState& total, const PoolState& next, int32_t pairs, int32_t acc_stride);

// Outputs and cells of an item: `stored` (not read where the item has no stored tokens) merged with `exact`, the state
// of own rows and exact pages.
void finish_item(const PoolProblem& problem, const PoolItem& item, const PoolBlock& b, const PoolState& stored,
                 const PoolState& exact);

}  // namespace assay
