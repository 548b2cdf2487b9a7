// What attention gave each token of one row, per head of the group, where somebody asks: the gate, to see which pages
// hold a bound up, and the audit, to compare the served weights themselves with exact ones.
//
// Tokens are numbered as positions: stored ones, then the slice's own up to the row.
// Owns: the numbers. Threads: one. Errors: none.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv/gate.h"

namespace assay {

// Where attention writes; [pairs][tokens] each.
struct AttentionLogView {
  int32_t tokens = 0;
  float* weight = nullptr;  // e^(logit - max)
  float* max = nullptr;     // of the moment: final weights are weight x e^(max - largest max)
  float* radius = nullptr;  // the pool's first radius
  float* other = nullptr;   // the smaller one of two; nothing where the pool has one
  float* rho = nullptr;
};

class AttentionLog {
 public:
  AttentionLog(int32_t pairs, int32_t tokens);
  const AttentionLogView& view() const { return view_; }

 private:
  std::vector<float> memory_;
  AttentionLogView view_;
};

// Served weights of a pair, sum 1, from what was logged: [tokens].
std::vector<double> served_weights(const AttentionLogView& log, int32_t pair);

// TV* over the pages of the stored tokens, own rows as one page more; an upper bound for the served weights. `smaller`:
// from the smaller radii of two. `serial_terms` of the cell: each may be a factor that a weight went through. +infinity
// where a radius is above kLargestRadius: weights that underflowed could be the largest exact ones there.
float page_bound(const AttentionLogView& log, int32_t pair, int32_t page_tokens, int32_t stored, int32_t serial_terms,
                 bool smaller);

// Mass, radius and value error of each page of the stored tokens.
std::vector<kv::GatePage> page_contributions(const AttentionLogView& log, int32_t pair, int32_t page_tokens,
                                             int32_t stored, bool smaller);

}  // namespace assay
