// Counters and gauges of a running engine. Totals never decrease. One snapshot is of one moment between steps, but for the queue
// (num_waiting, rejected_queue_full_total), which is read a moment later: a sequence that is just starting may be in neither
// num_waiting nor num_running.
#pragma once

#include <array>
#include <cstdint>

namespace assay {

struct EngineStats {
  int64_t num_running = 0;  // sequences
  int64_t num_waiting = 0;  // sequences, preempted ones included
  int64_t pages_total = 0;
  int64_t pages_in_use = 0;     // held by sequences
  int64_t pages_cached = 0;     // held by the prefix cache alone: free when needed

  int64_t steps_total = 0;
  int64_t prompt_tokens_total = 0;      // of admitted requests, once each
  int64_t generation_tokens_total = 0;
  int64_t prefill_tokens_computed_total = 0;  // recomputation after preemption included
  int64_t preemptions_total = 0;
  int64_t restored_tokens_total = 0;  // of preempted sequences, read back from exact rows instead of computed again
  int64_t prefix_cache_queries_total = 0;  // tokens, first admissions only
  int64_t prefix_cache_hits_total = 0;     // tokens
  std::array<int64_t, 4> finished_total{};  // by FinishReason
  int64_t rejected_queue_full_total = 0;

  // Tokens per step: bucket i counts steps with <= kStepTokenBounds[i] tokens; the last bucket is the rest.
  static constexpr std::array<int32_t, 14> kStepTokenBounds{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  std::array<int64_t, 15> step_tokens{};
  int64_t step_tokens_sum = 0;

  bool healthy = true;  // false once the engine thread has died or a device failed; it never turns true again
};

}  // namespace assay
