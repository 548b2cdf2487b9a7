// The two plain values between deciding and computing: what one step shall compute, and what came out.
// engine/schedule makes a StepPlan and knows no device; engine/execute runs it and knows no queue.
//
// Threads: values, made and read on the engine thread. The pointers in a plan stay valid until its result has been applied.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/events.h"
#include "engine/api/request.h"
#include "kernels/kv/meter.h"

namespace assay {

// One sequence's part of a step: positions [first_position, first_position + num_tokens) of its token list.
// Decode is num_tokens = 1 at the end of the list; a prefill chunk is any number of prompt (or recomputed) tokens.
struct SequenceSlice {
  int64_t sequence_id = 0;             // unique in the engine's life
  const int32_t* tokens = nullptr;     // [num_known_tokens] prompt then generated, from position 0
  int32_t num_known_tokens = 0;
  int32_t num_prompt_tokens = 0;
  int32_t first_position = 0;          // K and V of all positions before it are in the cache
  int32_t num_tokens = 0;              // >= 1
  const int32_t* pages = nullptr;      // block table: page ids covering positions [0, first_position + num_tokens)
  int32_t num_pages = 0;

  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;          // of this sequence; with the generated position it decides the random number, nothing else does
  bool sample = false;        // the slice reaches the end of the list: sample the next token
  bool forbid_stop = false;   // min_tokens not reached: end-of-sequence and stop ids get probability 0
  bool prompt_logprobs = false;  // score the prompt tokens that follow each position of the slice
  kv::MeterThresholds meter;     // read by pools that have a meter
};

// Decode: the one generated token that is left. Everything else is prefill, computing again after preemption included.
constexpr bool is_decode(int32_t first_position, int32_t num_tokens, int32_t num_prompt_tokens) {
  return num_tokens == 1 && first_position >= num_prompt_tokens;
}
// Whether the last row of the slice decides a generated token that nobody has seen: one decode row, alone or at the end of
// what a preempted sequence computes again.
inline bool has_decode_row(const SequenceSlice& slice) {
  const int32_t end = slice.first_position + slice.num_tokens;
  return end == slice.num_known_tokens && end > slice.num_prompt_tokens;
}

inline bool is_decode(const SequenceSlice& slice) {
  return is_decode(slice.first_position, slice.num_tokens, slice.num_prompt_tokens);
}

// A sequence that was preempted, as it was: whoever keeps exact rows may keep those of its pages, when they go, for its return.
struct ParkedSequence {
  int64_t sequence_id = 0;
  std::vector<int32_t> pages;  // its block table
  int32_t num_tokens = 0;      // tokens whose K and V were in them
};

// Pages of a sequence that comes back. They are filled from what was kept for it, before anything is computed.
struct RestoredPages {
  int64_t sequence_id = 0;
  int32_t first_page = 0;      // pages[i] is page first_page + i of the sequence, whole
  std::vector<int32_t> pages;
};

struct StepPlan {
  std::vector<SequenceSlice> slices;
  int32_t num_tokens = 0;  // sum over slices
  // Ended or preempted since the last plan: what is kept for them may go. A preempted one comes back later, and then starts
  // at position 0 or behind a cached prefix.
  std::vector<int64_t> ended_sequences;
  // Pages whose content went since the last plan; slices of this plan may write them anew.
  std::vector<int32_t> freed_pages;
  std::vector<ParkedSequence> parked;
  std::vector<RestoredPages> restored;  // slices of these sequences begin behind them
};

struct SliceResult {
  // Not OK: this slice alone failed (its logits were not finite); end its sequence with this status. Nothing else of the
  // slice is valid then; the other slices of the step are.
  absl::Status status;
  bool sampled = false;
  TokenLogprobs token;  // .token always, the rest when logprobs were asked for
  // For slices with prompt_logprobs: one entry per position p of the slice with p + 1 < num_prompt_tokens, scoring p + 1.
  std::vector<TokenLogprobs> prompt_logprobs;
  kv::SequenceMeter meter;  // of this step alone; all zero for pools without a meter
  bool backed = false;      // every page of the slice has exact rows in the backing store
};

struct StepResult {
  std::vector<SliceResult> slices;  // as in the plan
};

}  // namespace assay
