// The engine's one thread, step by step: drain, plan, publish, execute, apply, publish. See engine/README.md for the
// contract.
//
// Owns: the executor, the KV cache's bookkeeping, every live sequence. A sequence is either waiting or running until
// its one terminal event, and gone afterwards.
// Threads: one thread at a time calls step, idle and shut_down (the engine thread, or a test that drives it). stats()
// may be called from any thread. Other threads reach the loop through the Inbox alone.
// Errors: none returned. A request's failure is its terminal event; a failed executor ends everything and
// stats().healthy.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "engine/api/config.h"
#include "engine/api/meters.h"
#include "engine/api/stats.h"
#include "engine/core/certificate_rules.h"
#include "engine/core/inbox.h"
#include "engine/core/meter_history.h"
#include "engine/core/sequence.h"
#include "engine/execute/executor.h"
#include "engine/schedule/scheduler.h"

namespace assay {

class EngineLoop {
 public:
  EngineLoop(std::unique_ptr<Executor> executor, std::shared_ptr<Inbox> inbox, ScheduleLimits limits,
             KvCacheOptions cache, CertificateRules rules, bool telemetry, std::function<TimePoint()> now);

  void step();
  bool idle() const { return requests_.empty(); }  // nothing to do until the inbox has something
  void shut_down();                                // ends what is left with kAbort; the inbox must refuse by now

  EngineStats stats() const;
  MeterSnapshot meters() const { return meters_.snapshot(now_()); }  // empty without telemetry
  GateStats gate() const;
  const Executor& executor() const { return *executor_; }

  // For tests, between steps on the stepping thread.
  const KvCacheManager& cache() const { return cache_; }
  std::vector<const Sequence*> live_sequences() const;  // rank order

 private:
  struct ByRank {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->rank() < b->rank(); }
  };
  struct LiveRequest {
    std::shared_ptr<const Request> request;
    std::shared_ptr<Mailbox> mailbox;
    std::vector<std::unique_ptr<Sequence>> sequences;  // by index; null once ended
    int32_t num_live = 0;
    bool prompt_done = false;  // sequence 0 has its prompt computed, or has ended: siblings need not wait for its pages
  };

  // The phases of a step.
  void drain();
  ScheduleDecision plan() const;
  StepPlan commit(ScheduleDecision decision);
  absl::StatusOr<StepResult> execute(const StepPlan& plan);
  void apply(const StepPlan& plan, StepResult result);
  void publish();
  void read_meters();

  void accept(Submission submission);
  void obey(const StreamCommand& command);
  void end_overdue();
  bool may_start(const Sequence& sequence) const;
  SequenceView waiting_view(const Sequence& sequence) const;
  void preempt(Sequence& sequence);
  void admit(Sequence& sequence, const Admission& admission);
  RestoredPages restored_pages(const Admission& admission) const;
  SequenceSlice slice_of(const Sequence& sequence, const SliceDecision& decision) const;
  void count_step(const StepPlan& plan);
  absl::Status check_result(const StepPlan& plan, const StepResult& result) const;
  void apply_slice(Sequence& sequence, const SequenceSlice& slice, SliceResult result);
  void take_prompt_logprobs(Sequence& sequence, const SequenceSlice& slice, SliceResult& result);
  void take_token(Sequence& sequence, SliceResult result);
  void fail(const absl::Status& why);

  void end_all(FinishReason reason, const absl::Status& status);
  void end(Sequence& sequence, FinishReason reason, const absl::Status& status = absl::OkStatus());
  void end(Sequence& sequence, Event last);  // `last` has `finish` set; the sequence is gone afterwards
  void send(const Sequence& sequence, Event event);
  Sequence& sequence(SequenceId id) { return *sequences_.at(id); }

  const std::unique_ptr<Executor> executor_;
  const std::shared_ptr<Inbox> inbox_;
  const ScheduleLimits limits_;
  const CertificateRules rules_;
  const bool telemetry_;  // the meter's tallies per head are read
  const bool restores_;   // rows kept for preempted sequences are worth reading back
  const std::function<TimePoint()> now_;
  KvCacheManager cache_;

  std::unordered_map<int64_t, LiveRequest> requests_;  // by stream id
  std::unordered_map<SequenceId, Sequence*> sequences_;
  std::set<Sequence*, ByRank> waiting_;
  std::set<Sequence*, ByRank> running_;
  SequenceId next_sequence_id_ = 0;
  int64_t num_with_deadline_ = 0;  // requests

  std::vector<SequenceId> ended_sequences_;  // for the next plan
  std::vector<ParkedSequence> parked_;       // likewise
  MeterHistory meters_;
  std::vector<std::pair<std::shared_ptr<Mailbox>, Event>> outbox_;  // in order, until published
  EngineStats counters_;
  mutable std::mutex stats_mutex_;
  EngineStats published_;  // under stats_mutex_
  GateStats gate_;         // likewise
};

}  // namespace assay
