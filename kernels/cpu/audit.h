// One cell against exact attention, in double, from the backing store: the true total variation of the weights that were
// served and the true error of the output, against the bounds that the cell reports.
//
// Threads: one caller at a time. Errors: a cell whose rows are not all there and intact is not audited; rows that failed
// their checksum are counted.
#pragma once

#include <optional>

#include "kernels/cpu/attention_log.h"
#include "kernels/cpu/pool_problem.h"
#include "kernels/kv/gate.h"

namespace assay {

// True errors of one cell as it is served now.
struct CellErrors {
  double tv = 0;
  double output = 0;         // |y^ - y|
  double largest_value = 0;  // max |v_t|
};

// `item`: one row; `log`: of the attention whose output and cell are served. None: a row was not there or not intact.
std::optional<CellErrors> true_errors(const PoolProblem& problem, const PoolItem& item, int32_t pair,
                                      const AttentionLogView& log, kv::GateTally& tally);

// Compares a cell with its errors. Cells that read no compressed row have nothing to compare.
void audit_cell(const PoolProblem& problem, const PoolItem& item, int32_t pair, const CellErrors& errors,
                kv::AuditTallies& tallies);

}  // namespace assay
