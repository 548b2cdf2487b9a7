// Decides what the next step computes. A pure function of plain values: no device, no model, no clock, no mailbox.
//
// Rules
//   rank        lower priority value first, then earlier arrival. Callers pass sequences in rank order.
//   decode      every running sequence with one token to compute gets it, best rank first, before any prefill.
//   prefill     the rest of the budget goes to running prompts in rank order, in chunks, then to new admissions.
//   admission   in rank order without overtaking: the first that does not fit ends it. It takes pages for all known
//               tokens at once, so only decodes ever need more, and leaves one page for each running sequence.
//   preemption  a decode without a page takes the pages of the worst-ranked running sequence, itself if it is that.
//               The victim is computed again later. A pass that preempts admits no one.
//   restoring   a sequence whose rows were kept when it was preempted gets them back into its pages, from the end of its
//               cached prefix on, all but its last token: they are not computed again.
//   progress    when nothing runs and the first waiting sequence still does not fit, it is reported as stalled. Else
//               the best-ranked running sequence gets at least one token in every step, so it ends, and the next
//               one follows.
//
// Threads: any. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/kv_cache_manager.h"

namespace assay {

struct ScheduleLimits {
  int32_t max_num_seqs = 1;            // running at once
  int32_t max_num_batched_tokens = 1;  // per step
};

// What the scheduler may know of a sequence.
struct SequenceView {
  SequenceId id = 0;
  const int32_t* tokens = nullptr;  // [num_tokens] prompt, then generated
  int32_t num_tokens = 0;
  int32_t num_computed = 0;                 // tokens whose K and V are in its pages; 0 when waiting
  const std::string* cache_salt = nullptr;  // of a waiting sequence
  int32_t first_kept = 0, end_kept = 0;     // of a waiting sequence: positions whose rows can be restored, whole pages
  bool use_prefix_cache = true;             // false: every position has to be computed (prompt log probabilities)
};

struct ScheduleState {
  std::vector<SequenceView> running;  // rank order
  std::vector<SequenceView> waiting;  // rank order, only those that may start now
};

// Compute positions [first_position, first_position + num_tokens) of a sequence.
struct SliceDecision {
  SequenceId id = 0;
  int32_t first_position = 0;
  int32_t num_tokens = 0;
};

struct Admission {
  SequenceId id = 0;
  int32_t num_cached_tokens = 0;    // found in the prefix cache
  int32_t num_restored_tokens = 0;  // behind them, to be restored from kept rows
};

struct ScheduleDecision {
  std::vector<SliceDecision> slices;
  int32_t num_tokens = 0;             // sum over slices, at most max_num_batched_tokens
  std::vector<Admission> admitted;    // waiting -> running
  std::vector<SequenceId> preempted;  // running -> waiting, nothing computed
  std::optional<SequenceId> stalled;  // can never run: to be ended with an error
  KvPlan pages;                       // to be committed with the rest
};

ScheduleDecision schedule(const ScheduleState& state, const ScheduleLimits& limits, const KvCacheManager& cache);

}  // namespace assay
