// The gate on the CPU (docs/certificate.md, section 7; decisions in kernels/kv/gate.h).
//
// It stands between attention, which left outputs and one cell per metered (row, head), and fold_meters, which labels
// the cells. Rows whose policy or layer is exact are computed again with every page read from the backing store. Decode
// cells over their thresholds under policy repair are lowered: by the finer page bound, then with pages read back and
// the row's attention computed again over the mixture, all heads of the group alike. A page that is read back is kept in
// the repair cache where there is room. On audited steps the cells that are left are compared with exact attention.
//
// A backing row is read through its checksum only; one that fails is counted and its page stays as it was.
// Repairs are decided in order of rows and KV heads, so the result does not depend on the threads. Errors: none.
#pragma once

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv/gate.h"
#include "kernels/ops.h"

namespace assay {

// After cpu_pool_attention of the same layer, with the same arguments, and before kv_write.
void cpu_gate(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch, const AttentionShape& shape,
              ConstTensor qkv, const PagedKvView& cache, const kv::MeterView& meter, const kv::GateView& gate, Tensor out);

}  // namespace assay
