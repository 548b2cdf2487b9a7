#include "tests/sim/workload.h"

#include <algorithm>
#include <cmath>

#include "engine/core/seeds.h"

namespace assay::test {
namespace {

constexpr int32_t kNumSalts = 3;
constexpr auto kTick = std::chrono::milliseconds(10);

}  // namespace

Workload::Workload(uint64_t seed) : random_(seed) {
  make_engine();
}

void Workload::make_engine() {
  model_.block_size = 1 << random(0, 3);
  model_.max_model_len = random(8, 64);
  model_.num_pages = random(2, chance(70) ? 24 : 80);
  model_.vocab_size = chance(50) ? 4 : 40;
  // Requests carry their salt in the low digits of their seed, where the fake model finds it.
  model_.salt_of = [](const SamplingParams& sampling) { return *sampling.seed % kNumSalts; };
  config_.max_num_seqs = model_.max_num_seqs = random(1, 8);
  config_.max_num_batched_tokens = model_.max_num_batched_tokens = random(1, chance(50) ? 8 : 64);
  model_.keeps_rows = chance(50);
  config_.max_num_queued_reqs = random(2, 24);
  config_.enable_prefix_caching = chance(85);
  config_.block_size = model_.block_size;
  context_ = std::min(model_.max_model_len, model_.num_pages * model_.block_size);
  EngineOptions options;
  options.now = [this] { return now_; };
  options.prefix_hash_key = SipKey{random_(), random_()};
  options.prefix_hash_bits = chance(60) ? 64 : chance(50) ? 8 : 0;
  options.start_thread = false;
  auto executor = std::make_unique<FakeExecutor>(model_);
  executor_ = executor.get();
  engine_ = EngineImpl::create(config_, std::move(executor), options).value();
}

std::vector<int32_t> Workload::make_prompt() {
  std::vector<int32_t> prompt;
  if (!seen_texts_.empty() && chance(60)) {
    const std::vector<int32_t>& text = seen_texts_[random(0, static_cast<int32_t>(seen_texts_.size()) - 1)];
    prompt.assign(text.begin(), text.begin() + random(1, static_cast<int32_t>(text.size())));
  }
  for (int32_t more = random(prompt.empty() ? 1 : 0, 12); more > 0; --more)
    prompt.push_back(random(0, model_.vocab_size - 1));
  const size_t longest = std::max(context_ - 1, 1);
  if (prompt.size() > longest) prompt.resize(longest);
  return prompt;
}

Request Workload::make_request() {
  Request request;
  request.prompt = make_prompt();
  request.num_sequences = chance(75) ? 1 : random(2, std::min(5, config_.max_num_queued_reqs));
  request.priority = chance(70) ? 0 : random(-1, 1);
  const int32_t salt = chance(60) ? 0 : random(1, kNumSalts - 1);
  request.cache_salt = salt == 0 ? "" : "salt " + std::to_string(salt);
  request.sampling.seed = static_cast<uint64_t>(random(0, 1000)) * kNumSalts + salt;
  request.sampling.max_tokens = random(1, chance(50) ? 6 : 64);
  if (chance(20)) request.sampling.min_tokens = random(0, request.sampling.max_tokens);
  request.sampling.ignore_eos = chance(60);
  if (chance(20)) request.sampling.stop_token_ids = {random(0, model_.vocab_size - 1)};
  if (chance(15)) request.sampling.prompt_logprobs = 0;
  if (request.sampling.prompt_logprobs >= 0 && chance(30))
    request.sampling.max_tokens = request.sampling.min_tokens = 0;
  if (chance(10)) request.deadline = now_ + kTick * random(1, 60);
  return request;
}

void Workload::arrive() {
  Client client;
  client.request = make_request();
  const int32_t num_sequences = client.request.num_sequences;
  for (int32_t i = 0; i < num_sequences; ++i) {
    const uint64_t seed = derived_seed(*client.request.sampling.seed, i);
    client.expected.push_back(run_alone(model_, client.request, seed, context_));
  }
  client.tokens.resize(num_sequences);
  client.ended.resize(num_sequences);
  client.stopped.resize(num_sequences);
  client.submitted = now_;
  const int64_t num_queued = engine_->stats().num_waiting;
  absl::StatusOr<std::unique_ptr<Stream>> stream = engine_->submit(client.request);
  if (!stream.ok()) {
    const bool full = num_queued + num_sequences > config_.max_num_queued_reqs;
    if (!absl::IsResourceExhausted(stream.status()) || !full) fail("refused: " + stream.status().ToString());
    ++counts_.refused_full;
    return;
  }
  client.stream = *std::move(stream);
  seen_texts_.push_back(client.request.prompt);
  ++counts_.requests;
  counts_.sequences += num_sequences;
  clients_.push_back(std::move(client));
}

// Clients that stop, cancel, or hang up without a word.
void Workload::interfere() {
  if (clients_.empty() || !chance(8)) return;
  const int32_t which = random(0, static_cast<int32_t>(clients_.size()) - 1);
  Client& client = clients_[which];
  switch (random(0, 2)) {
    case 0: {
      const int32_t sequence = random(0, client.request.num_sequences - 1);
      client.stopped[sequence] = true;
      client.stream->stop(sequence);
      break;
    }
    case 1:
      client.cancelled = true;
      client.stream->cancel();
      break;
    default:
      clients_.erase(clients_.begin() + which);
  }
}

void Workload::receive(bool all) {
  for (size_t i = 0; i < clients_.size();) {
    Client& client = clients_[i];
    if (all || chance(50)) {
      for (const Event& event : client.stream->take()) take_event(client, event);
    }
    const bool done = std::find(client.ended.begin(), client.ended.end(), false) == client.ended.end();
    if (done) {
      if (!client.stream->take().empty()) fail("events after the last ending");
      if (seen_texts_.size() > 40) seen_texts_.erase(seen_texts_.begin());
      seen_texts_.push_back(client.request.prompt);
      seen_texts_.back().insert(seen_texts_.back().end(), client.tokens[0].begin(), client.tokens[0].end());
      clients_.erase(clients_.begin() + i);
    } else {
      ++i;
    }
  }
}

void Workload::take_event(Client& client, const Event& event) {
  const int32_t index = event.sequence;
  if (index < 0 || index >= client.request.num_sequences) return fail("an event of no sequence");
  if (client.ended[index]) return fail("an event after a terminal event");
  std::vector<int32_t>& tokens = client.tokens[index];
  if (!event.prompt_logprobs.empty()) {
    if (index != 0 || !tokens.empty() || client.prompt_logprobs_seen) fail("prompt scores at the wrong time");
    if (client.request.sampling.prompt_logprobs < 0) fail("prompt scores nobody asked for");
    if (event.prompt_logprobs.size() != client.request.prompt.size()) fail("prompt scores of another length");
    for (size_t i = 1; i < event.prompt_logprobs.size(); ++i) {
      if (event.prompt_logprobs[i].logprob != fake_logprob(client.request.prompt, i)) fail("a wrong prompt score");
    }
    client.prompt_logprobs_seen = true;
    ++counts_.prompt_scored;
  }
  if (event.token) {
    const bool owed = index == 0 && client.request.sampling.prompt_logprobs >= 0;
    if (owed && !client.prompt_logprobs_seen) fail("a token before the prompt scores");
    const std::vector<int32_t>& expected = client.expected[index].tokens;
    if (tokens.size() >= expected.size() || expected[tokens.size()] != *event.token)
      fail("a token that differs from running alone");
    tokens.push_back(*event.token);
  }
  if (event.finish) take_ending(client, event);
}

void Workload::take_ending(Client& client, const Event& event) {
  const int32_t index = event.sequence;
  const Continuation& expected = client.expected[index];
  client.ended[index] = true;
  if (event.status.ok() == (*event.finish == FinishReason::kError)) fail("status and finish reason disagree");
  check_usage(client, event);
  switch (*event.finish) {
    case FinishReason::kStop:
      if (!event.stop_token && client.stopped[index]) {
        ++counts_.stopped;
        return;
      }
      ++counts_.by_stop_id;
      break;
    case FinishReason::kLength:
      ++counts_.by_length;
      break;
    case FinishReason::kAbort:
      if (!client.cancelled) fail("aborted without a reason");
      ++counts_.cancelled;
      return;
    case FinishReason::kError:
      if (!client.request.deadline || !absl::IsDeadlineExceeded(event.status))
        fail("failed: " + event.status.ToString());
      if (client.request.deadline && now_ < *client.request.deadline) fail("failed before its deadline");
      ++counts_.overdue;
      return;
  }
  if (*event.finish != expected.finish || event.stop_token != expected.stop_token)
    fail("ends otherwise than when alone");
  if (client.tokens[index] != expected.tokens) fail("ends with other tokens than when alone");
}

void Workload::check_usage(const Client& client, const Event& event) {
  const SequenceUsage& usage = event.usage;
  const double total = usage.queue_s + usage.prefill_s + usage.decode_s;
  const double elapsed = std::chrono::duration<double>(now_ - client.submitted).count();
  if (usage.queue_s < 0 || usage.prefill_s < 0 || usage.decode_s < 0 || total > elapsed + 1e-9)
    fail("times that cannot be");
  if (usage.prompt_tokens != static_cast<int32_t>(client.request.prompt.size())) fail("wrong prompt_tokens");
  if (usage.completion_tokens != static_cast<int32_t>(client.tokens[event.sequence].size()))
    fail("wrong completion_tokens");
  if (usage.cached_tokens >= usage.prompt_tokens || usage.cached_tokens % model_.block_size != 0)
    fail("wrong cached_tokens");
  if (usage.cached_tokens > 0 && !config_.enable_prefix_caching) fail("hits without a prefix cache");
  const bool scored = event.sequence == 0 && client.request.sampling.prompt_logprobs >= 0;
  if (usage.cached_tokens > 0 && scored) fail("hits for a prompt to be scored");
}

void Workload::check_invariants() {
  if (!executor_->violation().empty()) fail(executor_->violation());
  const KvCacheManager& cache = engine_->loop().cache();
  if (const std::string violation = cache.find_violation(); !violation.empty()) fail(violation);
  int32_t num_running = 0;
  for (const Sequence* sequence : engine_->loop().live_sequences()) {
    num_running += sequence->running;
    if (cache.knows(sequence->id) != sequence->running)
      fail("pages of a sequence that does not run, or none of one that does");
    if (!sequence->running && sequence->num_computed != 0) fail("a waiting sequence claims computed tokens");
    if (!sequence->running) continue;
    const auto capacity = static_cast<int32_t>(cache.pages(sequence->id).size()) * model_.block_size;
    if (capacity < sequence->num_computed) fail("fewer pages than computed tokens");
    if (sequence->num_computed >= sequence->num_tokens()) fail("a running sequence with nothing to compute");
  }
  const EngineStats stats = engine_->stats();
  if (num_running != stats.num_running || num_running > config_.max_num_seqs) fail("wrong number of running sequences");
  if (num_running == 0 && stats.pages_in_use != 0) fail("pages leaked: nothing runs");
  check_progress();
  check_order();
}

// Nobody overtakes: who was admitted in this step ranks before everyone who may start and still waits.
void Workload::check_order() {
  bool someone_waits = false;
  std::set<SequenceId> running;
  for (const Sequence* sequence : engine_->loop().live_sequences()) {  // rank order
    if (sequence->running) running.insert(sequence->id);
    if (sequence->running && !running_.contains(sequence->id) && someone_waits) fail("a sequence was overtaken");
    if (!sequence->running && sequence->index == 0) someone_waits = true;
  }
  running_ = std::move(running);
}

// The best-ranked live sequence is served in every step it runs in, and gets to run once those before it have ended.
void Workload::check_progress() {
  const std::vector<const Sequence*> live = engine_->loop().live_sequences();
  if (live.empty()) {
    best_ = -1;
    return;
  }
  const Sequence& best = *live.front();
  const std::vector<int64_t>& served = executor_->last_plan();
  if (best.id != best_ || std::find(served.begin(), served.end(), best.id) != served.end()) {
    best_ = best.id;
    best_waited_ = 0;
    return;
  }
  ++best_waited_;
  if (best.running) fail("the best-ranked running sequence was not served");
  if (best_waited_ > int64_t{config_.max_num_seqs} * context_ + 1) fail("the best-ranked sequence starves");
}

void Workload::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what + " (step " + std::to_string(engine_->stats().steps_total) + ")";
}

std::string Workload::run(int32_t num_steps, WorkloadCounts& counts) {
  const int32_t arrival_percent = random(5, 60);
  const int64_t most_steps = num_steps + int64_t{200} * context_ * config_.max_num_queued_reqs;
  for (int64_t step = 0; failure_.empty(); ++step) {
    if (step > most_steps) fail("the workload does not end");
    const bool open = step < num_steps;
    if (open && chance(arrival_percent)) arrive();
    if (open) interfere();
    if (!open && clients_.empty() && engine_->loop().idle() && engine_->stats().num_waiting == 0) break;
    engine_->step();
    now_ += kTick;
    check_invariants();
    receive(!open);
  }
  const EngineStats stats = engine_->stats();
  if (failure_.empty() && (stats.pages_in_use != 0 || stats.num_running != 0)) fail("something is left at the end");
  counts.steps += stats.steps_total;
  counts.preemptions += stats.preemptions_total;
  counts.prefix_hit_tokens += stats.prefix_cache_hits_total;
  counts.positions_checked += executor_->num_positions_checked();
  counts.restored_tokens += executor_->num_tokens_restored();
  counts.requests += counts_.requests;
  counts.sequences += counts_.sequences;
  counts.refused_full += counts_.refused_full;
  counts.cancelled += counts_.cancelled;
  counts.stopped += counts_.stopped;
  counts.overdue += counts_.overdue;
  counts.by_stop_id += counts_.by_stop_id;
  counts.by_length += counts_.by_length;
  counts.prompt_scored += counts_.prompt_scored;
  return failure_;
}

}  // namespace assay::test
