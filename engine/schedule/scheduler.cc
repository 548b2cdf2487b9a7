#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

namespace assay {
namespace {

// One pass over a state. Members are what the phases share; the phases are named in run().
class Pass {
 public:
  Pass(const ScheduleState& state, const ScheduleLimits& limits, const KvCacheManager& cache)
      : state_(state),
        cache_(cache),
        max_running_(limits.max_num_seqs),
        tokens_left_(limits.max_num_batched_tokens),
        num_running_(static_cast<int32_t>(state.running.size())),
        decision_{
            .slices = {}, .num_tokens = 0, .admitted = {}, .preempted = {}, .stalled = {}, .pages = cache.plan()} {}

  ScheduleDecision run() {
    decode_running();
    prefill_running();
    if (decision_.preempted.empty()) admit_waiting();
    report_stalled();
    return std::move(decision_);
  }

 private:
  static bool decodes(const SequenceView& sequence) { return sequence.num_tokens - sequence.num_computed == 1; }

  // Victims come off the end of the running list, so `num_running_` is also where the survivors end.
  void decode_running() {
    for (int32_t i = 0; i < num_running_; ++i) {
      const SequenceView& sequence = state_.running[i];
      if (decodes(sequence) && find_page_for(sequence, i)) add_slice(sequence, sequence.num_computed);
    }
  }

  // False: sequence `index` itself had to go.
  bool find_page_for(const SequenceView& sequence, int32_t index) {
    while (!decision_.pages.grow(sequence.id, sequence.num_tokens)) {
      const SequenceId victim = state_.running[--num_running_].id;
      decision_.pages.release(victim);
      decision_.preempted.push_back(victim);
      if (num_running_ == index) return false;
    }
    return true;
  }

  void prefill_running() {
    for (int32_t i = 0; i < num_running_ && tokens_left_ > 0; ++i) {
      const SequenceView& sequence = state_.running[i];
      if (!decodes(sequence)) add_slice(sequence, sequence.num_computed);
    }
  }

  // An admission takes at least one token of a step in which all running sequences have had one, so no more sequences
  // ever run than a step has tokens, and decodes alone cannot keep a running prompt waiting.
  void admit_waiting() {
    for (const SequenceView& sequence : state_.waiting) {
      if (num_running_ >= max_running_ || tokens_left_ == 0) return;
      PrefixMatch match;
      if (sequence.use_prefix_cache) match = cache_.match(sequence.tokens, sequence.num_tokens, *sequence.cache_salt);
      const int32_t num_cached = match.num_tokens;
      if (!decision_.pages.admit(sequence.id, std::move(match), *sequence.cache_salt, sequence.num_tokens,
                                 num_running_)) {
        return;
      }
      const int32_t num_restored = restorable(sequence, num_cached);
      decision_.admitted.push_back({sequence.id, num_cached, num_restored});
      ++num_running_;
      add_slice(sequence, num_cached + num_restored);
    }
  }

  // Whole pages behind the cached prefix whose rows are kept. At least one token is left to compute logits from.
  int32_t restorable(const SequenceView& sequence, int32_t num_cached) const {
    if (!sequence.use_prefix_cache || sequence.first_kept > num_cached) return 0;
    const int32_t block = cache_.block_size(), last = (sequence.num_tokens - 1) / block * block;
    return std::max(0, std::min(sequence.end_kept, last) - num_cached);
  }

  void report_stalled() {
    if (num_running_ == 0 && decision_.preempted.empty() && !state_.waiting.empty()) {
      decision_.stalled = state_.waiting.front().id;
    }
  }

  void add_slice(const SequenceView& sequence, int32_t first_position) {
    const int32_t num_tokens = std::min(sequence.num_tokens - first_position, tokens_left_);
    decision_.slices.push_back({sequence.id, first_position, num_tokens});
    decision_.num_tokens += num_tokens;
    tokens_left_ -= num_tokens;
  }

  const ScheduleState& state_;
  const KvCacheManager& cache_;
  const int32_t max_running_;
  int32_t tokens_left_;
  int32_t num_running_;
  ScheduleDecision decision_;
};

}  // namespace

ScheduleDecision schedule(const ScheduleState& state, const ScheduleLimits& limits, const KvCacheManager& cache) {
  return Pass(state, limits, cache).run();
}

}  // namespace assay
