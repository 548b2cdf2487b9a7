#include "engine/core/engine_loop.h"

#include <algorithm>
#include <exception>
#include <string>

#include "cache/check.h"
#include "engine/core/seeds.h"
#include "engine/core/status_copy.h"
#include "engine/core/stop_rules.h"
#include "spdlog/spdlog.h"

namespace assay {

namespace {

// A restored token moves its rows; a computed one is multiplied with every parameter. Rows that take more bytes than there
// are parameters are the one case where computing again moves less.
bool restoring_is_cheaper(const ModelInfo& model, const PoolInfo& pool) {
  return pool.block_size > 0 && pool.bytes_per_page / pool.block_size < std::max<int64_t>(model.num_parameters, 1 << 20);
}

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<Executor> executor, std::shared_ptr<Inbox> inbox, ScheduleLimits limits,
                       KvCacheOptions cache, CertificateRules rules, bool telemetry, std::function<TimePoint()> now)
    : executor_(std::move(executor)),
      inbox_(std::move(inbox)),
      limits_(limits),
      rules_(std::move(rules)),
      telemetry_(telemetry && rules_.has_meter),
      restores_(restoring_is_cheaper(executor_->model(), executor_->pool())),
      now_(std::move(now)),
      cache_(std::move(cache)),
      meters_(executor_->model().num_layers, executor_->model().num_heads) {
  publish();
}

void EngineLoop::step() {
  drain();
  const StepPlan step = commit(plan());
  publish();  // endings and gauges do not wait for the device
  if (step.slices.empty()) return;
  absl::StatusOr<StepResult> result = execute(step);
  if (result.ok()) {
    apply(step, *std::move(result));
    read_meters();
  } else {
    fail(result.status());
  }
  publish();
}

void EngineLoop::drain() {
  Inbox::Contents contents = inbox_->take();
  for (Submission& submission : contents.submissions) accept(std::move(submission));
  for (const StreamCommand& command : contents.commands) obey(command);
  if (num_with_deadline_ > 0) end_overdue();
}

ScheduleDecision EngineLoop::plan() const {
  ScheduleState state;
  for (const Sequence* sequence : running_) state.running.push_back(sequence->view());
  const size_t num_free = limits_.max_num_seqs - running_.size();
  for (const Sequence* sequence : waiting_) {
    if (state.waiting.size() == num_free) break;
    if (may_start(*sequence)) state.waiting.push_back(waiting_view(*sequence));
  }
  return schedule(state, limits_, cache_);
}

StepPlan EngineLoop::commit(ScheduleDecision decision) {
  for (const SequenceId id : decision.preempted) {
    parked_.push_back({id, cache_.pages(id), sequence(id).num_computed});
  }
  cache_.commit(std::move(decision.pages));
  for (const SequenceId id : decision.preempted) preempt(sequence(id));
  for (const Admission& admission : decision.admitted) admit(sequence(admission.id), admission);
  if (decision.stalled) {
    end(sequence(*decision.stalled), FinishReason::kError,
        absl::ResourceExhaustedError("the KV cache has too few pages for this sequence even when nothing else runs"));
  }
  StepPlan step;
  step.num_tokens = decision.num_tokens;
  for (const SliceDecision& slice : decision.slices) step.slices.push_back(slice_of(sequence(slice.id), slice));
  if (step.slices.empty()) return step;
  step.ended_sequences = std::exchange(ended_sequences_, {});
  step.freed_pages = cache_.take_freed_pages();
  step.parked = std::exchange(parked_, {});
  for (const Admission& admission : decision.admitted) {
    if (admission.num_restored_tokens > 0) step.restored.push_back(restored_pages(admission));
  }
  count_step(step);
  return step;
}

// No exception leaves here: whatever the executor does, the engine thread lives to tell its clients.
absl::StatusOr<StepResult> EngineLoop::execute(const StepPlan& plan) {
  try {
    absl::StatusOr<StepResult> result = executor_->execute(plan);
    if (!result.ok()) return result;
    if (absl::Status status = check_result(plan, *result); !status.ok()) return status;
    return result;
  } catch (const std::exception& error) {
    return absl::InternalError(std::string("the executor threw: ") + error.what());
  } catch (...) {
    return absl::InternalError("the executor threw something unknown");
  }
}

void EngineLoop::apply(const StepPlan& plan, StepResult result) {
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const SequenceSlice& slice = plan.slices[i];
    apply_slice(sequence(slice.sequence_id), slice, std::move(result.slices[i]));
  }
}

// Numbers first: who reads a terminal event finds its sequence gone from the gauges.
void EngineLoop::publish() {
  const KvCacheUsage usage = cache_.usage();
  counters_.num_running = static_cast<int64_t>(running_.size());
  // Sequences that never ran are counted by the inbox, which knows them from submit on; see stats().
  counters_.num_waiting = std::count_if(waiting_.begin(), waiting_.end(),
                                        [](const Sequence* sequence) { return sequence->first_scheduled.has_value(); });
  counters_.pages_total = usage.total;
  counters_.pages_in_use = usage.in_use;
  counters_.pages_cached = usage.cached;
  {
    const std::lock_guard lock(stats_mutex_);
    published_ = counters_;
  }
  for (auto& [mailbox, event] : outbox_) mailbox->push(std::move(event));
  outbox_.clear();
}

// At leisure, and once more when the work runs out, so that what is scraped in a pause is complete.
void EngineLoop::read_meters() {
  const TimePoint now = now_();
  if (!rules_.has_meter || !(idle() || meters_.due(now))) return;
  meters_.take(telemetry_ ? executor_->read_head_meters() : std::vector<kv::HeadMeter>(), now);
  const GateStats gate = executor_->read_gate();
  const std::lock_guard lock(stats_mutex_);
  gate_ = gate;
}

void EngineLoop::shut_down() {
  drain();
  end_all(FinishReason::kAbort, absl::OkStatus());
  publish();
}

EngineStats EngineLoop::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = published_;
  }
  stats.num_waiting += inbox_->num_queued();
  stats.rejected_queue_full_total = inbox_->num_rejected();
  return stats;
}

GateStats EngineLoop::gate() const {
  const std::lock_guard lock(stats_mutex_);
  return gate_;
}

std::vector<const Sequence*> EngineLoop::live_sequences() const {
  std::vector<const Sequence*> all(running_.begin(), running_.end());
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  std::sort(all.begin(), all.end(), [](const Sequence* a, const Sequence* b) { return a->rank() < b->rank(); });
  return all;
}

void EngineLoop::accept(Submission submission) {
  LiveRequest& live = requests_[submission.stream_id];
  live.request = submission.request;
  live.mailbox = std::move(submission.mailbox);
  live.num_live = submission.request->num_sequences;
  for (int32_t index = 0; index < live.num_live; ++index) {
    live.sequences.push_back(std::make_unique<Sequence>(next_sequence_id_++, index, submission.stream_id,
                                                        submission.request, derived_seed(submission.seed, index),
                                                        submission.submitted));
    Sequence* sequence = live.sequences.back().get();
    sequences_[sequence->id] = sequence;
    waiting_.insert(sequence);
  }
  num_with_deadline_ += submission.request->deadline.has_value();
}

void EngineLoop::obey(const StreamCommand& command) {
  if (command.kind == StreamCommand::kAbortAll) return end_all(FinishReason::kAbort, absl::OkStatus());
  const auto found = requests_.find(command.stream_id);
  if (found == requests_.end()) return;  // it ended meanwhile
  std::vector<Sequence*> targets;
  for (const auto& sequence : found->second.sequences) {
    const bool meant = command.kind == StreamCommand::kCancel || (sequence && sequence->index == command.sequence);
    if (sequence && meant) targets.push_back(sequence.get());
  }
  const FinishReason reason = command.kind == StreamCommand::kCancel ? FinishReason::kAbort : FinishReason::kStop;
  for (Sequence* sequence : targets) end(*sequence, reason);
}

void EngineLoop::end_overdue() {
  const TimePoint now = now_();
  std::vector<Sequence*> overdue;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->request->deadline && *sequence->request->deadline <= now) overdue.push_back(sequence);
  }
  for (Sequence* sequence : overdue) {
    end(*sequence, FinishReason::kError,
        absl::DeadlineExceededError("the deadline passed before the request was done"));
  }
}

// Siblings wait for sequence 0, whose full prompt pages they then share, where there is one to share.
bool EngineLoop::may_start(const Sequence& sequence) const {
  if (sequence.index == 0 || !cache_.prefix_caching() || sequence.num_prompt() <= cache_.block_size()) return true;
  return requests_.at(sequence.stream_id).prompt_done;
}

SequenceView EngineLoop::waiting_view(const Sequence& sequence) const {
  SequenceView view = sequence.view();
  if (sequence.preemptions == 0 || !restores_) return view;
  const Executor::KeptRows kept = executor_->kept_rows(sequence.id);
  view.first_kept = kept.first;
  view.end_kept = kept.end;
  return view;
}

RestoredPages EngineLoop::restored_pages(const Admission& admission) const {
  const std::vector<PageId>& pages = cache_.pages(admission.id);
  const auto first = pages.begin() + admission.num_cached_tokens / cache_.block_size();
  return {.sequence_id = admission.id,
          .first_page = admission.num_cached_tokens / cache_.block_size(),
          .pages = {first, first + admission.num_restored_tokens / cache_.block_size()}};
}

void EngineLoop::preempt(Sequence& sequence) {
  running_.erase(&sequence);
  waiting_.insert(&sequence);
  ended_sequences_.push_back(sequence.id);
  sequence.running = false;
  sequence.num_computed = 0;
  ++sequence.preemptions;
  ++counters_.preemptions_total;
}

void EngineLoop::admit(Sequence& sequence, const Admission& admission) {
  waiting_.erase(&sequence);
  running_.insert(&sequence);
  sequence.running = true;
  sequence.num_computed = admission.num_cached_tokens + admission.num_restored_tokens;
  counters_.restored_tokens_total += admission.num_restored_tokens;
  if (sequence.first_scheduled) return;  // back from preemption: its hits were counted, and its clock runs
  sequence.first_scheduled = now_();
  sequence.cached_tokens = admission.num_cached_tokens;
  inbox_->free_slots(1);
  if (sequence.index == 0) counters_.prompt_tokens_total += sequence.num_prompt();
  if (!cache_.prefix_caching() || sequence.owes_prompt_logprobs()) return;
  counters_.prefix_cache_queries_total += sequence.num_prompt();
  counters_.prefix_cache_hits_total += admission.num_cached_tokens;
}

SequenceSlice EngineLoop::slice_of(const Sequence& sequence, const SliceDecision& decision) const {
  const SamplingParams& sampling = sequence.request->sampling;
  const std::vector<PageId>& pages = cache_.pages(sequence.id);
  const MeteredSlice metered{.first_position = decision.first_position,
                             .decode = is_decode(decision.first_position, decision.num_tokens, sequence.num_prompt()),
                             .preemptions = sequence.preemptions};
  return {.sequence_id = sequence.id,
          .tokens = sequence.tokens().data(),
          .num_known_tokens = sequence.num_tokens(),
          .num_prompt_tokens = sequence.num_prompt(),
          .first_position = decision.first_position,
          .num_tokens = decision.num_tokens,
          .pages = pages.data(),
          .num_pages = static_cast<int32_t>(pages.size()),
          .sampling = &sampling,
          .seed = sequence.seed,
          .sample = sampling.max_tokens > 0 && decision.first_position + decision.num_tokens == sequence.num_tokens(),
          .forbid_stop = forbids_stop(sampling, sequence.num_generated()),
          .prompt_logprobs = sequence.owes_prompt_logprobs(),
          .meter = meter_thresholds(*sequence.request, rules_, metered)};
}

void EngineLoop::count_step(const StepPlan& plan) {
  ++counters_.steps_total;
  counters_.step_tokens_sum += plan.num_tokens;
  const auto& bounds = EngineStats::kStepTokenBounds;
  ++counters_.step_tokens[std::lower_bound(bounds.begin(), bounds.end(), plan.num_tokens) - bounds.begin()];
  for (const SequenceSlice& slice : plan.slices) {
    if (!is_decode(slice)) counters_.prefill_tokens_computed_total += slice.num_tokens;
  }
}

absl::Status EngineLoop::check_result(const StepPlan& plan, const StepResult& result) const {
  if (result.slices.size() != plan.slices.size()) return absl::InternalError("the executor answered another plan");
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const SequenceSlice& slice = plan.slices[i];
    const SliceResult& answer = result.slices[i];
    if (!answer.status.ok()) continue;  // nothing else of it is valid
    const int32_t end = std::min(slice.first_position + slice.num_tokens, slice.num_prompt_tokens - 1);
    const int32_t num_scored = slice.prompt_logprobs ? std::max(end - slice.first_position, 0) : 0;
    const bool token_ok = answer.token.token >= 0 && answer.token.token < executor_->model().vocab_size;
    if (answer.sampled != slice.sample || (slice.sample && !token_ok)) {
      return absl::InternalError("the executor sampled no token, or one outside the vocabulary");
    }
    if (static_cast<int32_t>(answer.prompt_logprobs.size()) != num_scored) {
      return absl::InternalError("the executor scored another number of prompt tokens");
    }
  }
  return absl::OkStatus();
}

// Commit point of computed tokens: only here does num_computed grow and a page become shareable.
void EngineLoop::apply_slice(Sequence& sequence, const SequenceSlice& slice, SliceResult result) {
  if (!result.status.ok()) return end(sequence, FinishReason::kError, result.status);
  sequence.certificate.add(result.meter, result.backed);
  if (!rules_.has_meter && has_decode_row(slice)) sequence.certificate.add_exact(rules_.cells_per_query);
  sequence.num_computed = slice.first_position + slice.num_tokens;
  cache_.mark_computed(sequence.id, slice.tokens, sequence.num_computed);
  if (sequence.index == 0 && sequence.prompt_computed()) requests_.at(sequence.stream_id).prompt_done = true;
  if (slice.prompt_logprobs) take_prompt_logprobs(sequence, slice, result);
  if (result.sampled) {
    take_token(sequence, std::move(result));
  } else if (sequence.request->sampling.max_tokens == 0 && sequence.prompt_computed()) {
    end(sequence, FinishReason::kLength);
  }
}

void EngineLoop::take_prompt_logprobs(Sequence& sequence, const SequenceSlice& slice, SliceResult& result) {
  std::move(result.prompt_logprobs.begin(), result.prompt_logprobs.end(),
            sequence.prompt_logprobs.begin() + std::min(slice.first_position + 1, sequence.num_prompt()));
  if (!sequence.prompt_computed()) return;
  sequence.prompt_logprobs_sent = true;
  Event event;
  event.prompt_logprobs = std::move(sequence.prompt_logprobs);
  send(sequence, std::move(event));
}

void EngineLoop::take_token(Sequence& sequence, SliceResult result) {
  const SamplingParams& sampling = sequence.request->sampling;
  const int32_t token = result.token.token;
  sequence.append(token, now_());
  ++counters_.generation_tokens_total;
  Event event;
  event.token = token;
  if (sampling.logprobs >= 0) event.logprobs = std::move(result.token);
  const std::optional<StopDecision> stop =
      stop_after(token, sequence.num_generated(), sampling, executor_->model().eos_token_ids);
  if (!stop) return send(sequence, std::move(event));
  event.finish = stop->reason;
  event.stop_token = stop->stop_token;
  end(sequence, std::move(event));
}

// The cache may be half written and the device is not to be trusted: everything ends, nothing new comes in.
void EngineLoop::fail(const absl::Status& why) {
  spdlog::error("engine: a step failed, no further request is served: {}", why.ToString());
  counters_.healthy = false;
  inbox_->refuse(absl::UnavailableError("the engine has failed: " + std::string(why.message())));
  drain();
  end_all(FinishReason::kError, absl::InternalError("the engine failed: " + std::string(why.message())));
}

void EngineLoop::end_all(FinishReason reason, const absl::Status& status) {
  while (!running_.empty()) end(**running_.begin(), reason, status);
  while (!waiting_.empty()) end(**waiting_.begin(), reason, status);
}

void EngineLoop::end(Sequence& sequence, FinishReason reason, const absl::Status& status) {
  Event event;
  event.finish = reason;
  event.status = status_copy(status);
  end(sequence, std::move(event));
}

void EngineLoop::end(Sequence& sequence, Event last) {
  ++counters_.finished_total[static_cast<size_t>(*last.finish)];
  last.usage = sequence.usage(now_());
  if (sequence.request->certificate.report) last.certificate = sequence.certificate.report(*sequence.request, rules_);
  send(sequence, std::move(last));
  cache_.release(sequence.id);
  if (!sequence.first_scheduled) inbox_->free_slots(1);
  if (sequence.running || sequence.preemptions > 0) ended_sequences_.push_back(sequence.id);
  (sequence.running ? running_ : waiting_).erase(&sequence);
  sequences_.erase(sequence.id);

  const auto found = requests_.find(sequence.stream_id);
  LiveRequest& live = found->second;
  if (sequence.index == 0) live.prompt_done = true;
  live.sequences[sequence.index].reset();
  if (--live.num_live > 0) return;
  num_with_deadline_ -= live.request->deadline.has_value();
  requests_.erase(found);
}

void EngineLoop::send(const Sequence& sequence, Event event) {
  event.sequence = sequence.index;
  outbox_.emplace_back(requests_.at(sequence.stream_id).mailbox, std::move(event));
}

}  // namespace assay
