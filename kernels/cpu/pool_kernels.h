// The vector parts of attention over a compressed pool, chosen for this machine at run time. Blocks and states are the
// caller's (pool_attention_state.h). Threads: plain functions. Errors: none.
#pragma once

#include "kernels/cpu/pool_attention_state.h"

namespace assay {

// Whether this machine reads certified and witcert records of `head_dim` in fragment order, and with integer products.
bool pool_reads_fragments(int32_t head_dim);
bool pool_has_integer_products();

// Stored tiles [begin, end) but those of exact pages.
void pool_run_stored_tiles(const PoolBlock& b, int32_t begin, int32_t end, const PoolState& state);
// The tiles of exact pages, in order.
void pool_run_exact_pages(const PoolBlock& b, const PoolState& state);
// k, v: the slice's own rows from its start, `stride` floats apart; `count` of them matter.
void pool_run_own_rows(const PoolBlock& b, const float* k, const float* v, int64_t stride, int32_t count,
                       const PoolState& state);

// out[head_dim] = the query as the pool's keys need it.
void pool_transform_query(const kv::RowTransform& t, const float* query, float* out);
// kv::norm_up; dim is a multiple of 16.
float pool_norm_up(const float* x, int32_t dim);
// A transformed query as operands of integer products; returns their unit.
float pool_load_integer_query(const float* q, int32_t head_dim, int8_t* digits, int32_t* start);
// x[head_dim] of rotated values back in the model's channels.
void pool_rotate_back(const float* signs, float* x, int32_t head_dim);
// sums[count] += sum over channels of q[c] x columns[c][count]; count is a multiple of 16.
void pool_add_dither_products(const float* q, const float* columns, int32_t channels, int32_t count, float* sums);

}  // namespace assay
