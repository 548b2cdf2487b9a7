// One cell against exact attention, in double, from the backing store: the true total variation of the weights that were
// served and the true error of the output, against the bounds that the cell reports.
//
// Threads: one caller at a time. Errors: a cell whose rows are not all there and intact is not audited; rows that failed
// their checksum are counted.
#pragma once

#include <vector>

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

// Exact attention of one row, all heads of a group: read and computed once, compared as often as the row is served anew.
class ExactAttention {
 public:
  // `item`: one row.
  ExactAttention(const PoolProblem& problem, const PoolItem& item, kv::GateTally& tally);
  bool is_known() const { return !heads_.empty(); }  // false: a row was not there or not intact

  // Of what is served now; `log`: of the attention that made it.
  CellErrors errors(int32_t pair, const AttentionLogView& log) const;

 private:
  struct Head {
    std::vector<double> weights;  // [tokens]
    std::vector<double> output;   // [head_dim]
    double largest_value = 0;     // max |v_t|
  };
  Head attend(const float* query, const std::vector<float>& keys, const std::vector<float>& values) const;

  const PoolProblem& problem_;
  const PoolItem item_;
  std::vector<Head> heads_;  // [pairs]
};

// Compares a cell with its errors. Cells that read no compressed row have nothing to compare.
void audit_cell(const PoolProblem& problem, const PoolItem& item, int32_t pair, const CellErrors& errors,
                kv::AuditTallies& tallies);

}  // namespace assay
