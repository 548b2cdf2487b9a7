// One cell against exact attention, in double, from the backing store: the true total variation of the weights that were
// served and the true error of the output, against the bounds that the cell reports.
//
// Threads: one caller at a time. Errors: a cell whose rows are not all there and intact is not audited; rows that failed
// their checksum are counted.
#pragma once

#include "kernels/cpu/attention_log.h"
#include "kernels/cpu/pool_problem.h"
#include "kernels/kv/gate.h"

namespace assay {

// `item`: one row; `log`: of the attention whose output and cell are served. Cells that read no compressed row have
// nothing to compare.
void audit_cell(const PoolProblem& problem, const PoolItem& item, int32_t pair, const AttentionLogView& log,
                const kv::BackingView& backing, kv::AuditTallies& tallies, kv::GateTally& tally);

}  // namespace assay
