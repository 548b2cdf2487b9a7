#include "kernels/cpu/fold_meters.h"

#include <algorithm>

namespace assay {

void cpu_fold_meters(ThreadPool& pool, int32_t layer, const kv::MeterView& meter) {
  const int64_t count = int64_t{meter.num_metered} * meter.num_heads;
  constexpr int64_t kCellsPerTask = 16;
  pool.parallel_for((count + kCellsPerTask - 1) / kCellsPerTask, [&](int64_t task, int) {
    for (int64_t i = task * kCellsPerTask; i < std::min(count, (task + 1) * kCellsPerTask); ++i) {
      const kv::MeteredRow& row = meter.rows[i / meter.num_heads];
      meter.verdicts[i] = kv::judge_cell(meter.cells[i], meter.thresholds[row.sequence], meter.bound, meter.radius);
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    const kv::MeteredRow& row = meter.rows[i / meter.num_heads];
    const int32_t head = static_cast<int32_t>(i % meter.num_heads);
    kv::tally_cell(meter.verdicts[i], row.phase, layer, meter.first_head + head, row.position,
                   meter.sequences[row.sequence], meter.heads[int64_t{layer} * meter.num_heads + head]);
  }
}

}  // namespace assay
