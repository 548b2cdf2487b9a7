// Labels and counts the cells that attention left for `layer`. Cells are judged in parallel and tallied in order, so
// the tallies do not depend on the threads.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/kv/fold_cell.h"

namespace assay {

void cpu_fold_meters(ThreadPool& pool, int32_t layer, const kv::MeterView& meter);

}  // namespace assay
