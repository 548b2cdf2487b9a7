#include "tests/sim/fake_executor.h"

#include <algorithm>

namespace assay::test {
namespace {

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccdULL;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

uint64_t extended(uint64_t hash, int32_t token) {
  return mixed(hash * 31 + static_cast<uint64_t>(token) + 1);
}

uint64_t hash_of(const int32_t* tokens, int32_t num_tokens) {
  uint64_t hash = 1;
  for (int32_t i = 0; i < num_tokens; ++i) hash = extended(hash, tokens[i]);
  return hash;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

int32_t next_token(const FakeModelOptions& model, uint64_t prefix_hash, uint64_t seed, const SamplingParams& sampling,
                   bool forbid_stop) {
  uint64_t random = mixed(prefix_hash ^ mixed(seed));
  for (;;) {
    const auto token = static_cast<int32_t>(random % model.vocab_size);
    const bool stops = contains(sampling.stop_token_ids, token) || contains(model.eos_token_ids, token);
    if (!forbid_stop || !stops) return token;
    random = mixed(random + 1);
  }
}

float logprob_of(uint64_t prefix_hash) {
  return -static_cast<float>(prefix_hash % 1000) / 100.0f;
}

// Content of a slot: prefix up to and including it, of one salt.
std::vector<uint64_t> contents_of(const SequenceSlice& slice, uint64_t salt) {
  std::vector<uint64_t> contents;
  uint64_t hash = 1;
  for (int32_t position = 0; position < slice.first_position + slice.num_tokens; ++position) {
    hash = extended(hash, slice.tokens[position]);
    contents.push_back(mixed(hash + salt) | 1);
  }
  return contents;
}

}  // namespace

float fake_logprob(const std::vector<int32_t>& tokens, int32_t position) {
  return logprob_of(hash_of(tokens.data(), position + 1));
}

// Written from the API's comments, not from the engine's code: this is the oracle.
Continuation run_alone(const FakeModelOptions& model, const Request& request, uint64_t sequence_seed, int32_t context) {
  const SamplingParams& sampling = request.sampling;
  Continuation result;
  std::vector<int32_t> tokens = request.prompt;
  const int32_t num_prompt = static_cast<int32_t>(tokens.size());
  const int32_t most = std::min(sampling.max_tokens, context - num_prompt);
  for (int32_t generated = 0; generated < most; ++generated) {
    const uint64_t hash = hash_of(tokens.data(), static_cast<int32_t>(tokens.size()));
    const bool too_early = generated < std::min(sampling.min_tokens, most);
    const int32_t token = next_token(model, hash, sequence_seed, sampling, too_early);
    tokens.push_back(token);
    result.tokens.push_back(token);
    const bool eos = contains(model.eos_token_ids, token) && !sampling.ignore_eos;
    if (!too_early && (eos || contains(sampling.stop_token_ids, token))) {
      result.finish = FinishReason::kStop;
      result.stop_token = token;
      break;
    }
  }
  return result;
}

FakeExecutor::FakeExecutor(FakeModelOptions options)
    : options_(std::move(options)), slots_(static_cast<size_t>(options_.num_pages) * options_.block_size, 0),
      page_lives_(static_cast<size_t>(options_.num_pages), false) {
  model_.architecture = "FakeForCausalLM";
  model_.dtype = "float32";
  model_.device = "fake";
  model_.vocab_size = options_.vocab_size;
  model_.max_model_len = options_.max_model_len;
  model_.eos_token_ids = options_.eos_token_ids;
  pool_.pool = "fake";
  pool_.dtype = "float32";
  pool_.block_size = options_.block_size;
  pool_.num_pages = options_.num_pages;
}

absl::StatusOr<StepResult> FakeExecutor::execute(const StepPlan& plan) {
  if (absl::Status status = options_.before_step(); !status.ok()) return status;
  check_plan(plan);
  park_and_restore(plan);
  std::vector<std::vector<uint64_t>> contents;
  for (const SequenceSlice& slice : plan.slices)
    contents.push_back(contents_of(slice, options_.salt_of(*slice.sampling)));
  // All reads before all writes: within a step nobody may rely on what another slice is about to compute.
  for (size_t i = 0; i < plan.slices.size(); ++i) check_reads(plan.slices[i], contents[i]);
  std::set<int64_t> written;
  for (size_t i = 0; i < plan.slices.size(); ++i) write(plan.slices[i], contents[i], written);
  StepResult result;
  for (const SequenceSlice& slice : plan.slices) result.slices.push_back(compute(slice));
  return result;
}

Executor::KeptRows FakeExecutor::kept_rows(int64_t sequence_id) {
  const auto found = kept_.find(sequence_id);
  if (found == kept_.end()) return {};
  const int32_t first = found->second.first_page * options_.block_size;
  return {first, first + static_cast<int32_t>(found->second.slots.size())};
}

// As the backing store: whole pages that were freed, from the end; ids pick sequences of which less, or nothing, is kept.
void FakeExecutor::park_and_restore(const StepPlan& plan) {
  const std::set<int32_t> freed(plan.freed_pages.begin(), plan.freed_pages.end());
  for (const int64_t id : plan.ended_sequences) kept_.erase(id);
  for (const ParkedSequence& parked : plan.parked) {
    if (!options_.keeps_rows || parked.sequence_id % 5 == 0) continue;
    Kept kept;
    const int32_t whole = parked.num_tokens / options_.block_size;
    kept.first_page = whole;
    while (kept.first_page > 0 && freed.contains(parked.pages[kept.first_page - 1])) --kept.first_page;
    for (int32_t page = kept.first_page; page < whole - static_cast<int32_t>(parked.sequence_id % 2); ++page) {
      const auto from = slots_.begin() + int64_t{parked.pages[page]} * options_.block_size;
      kept.slots.insert(kept.slots.end(), from, from + options_.block_size);
    }
    kept_[parked.sequence_id] = kept;
  }
  for (const RestoredPages& restored : plan.restored) {
    const Kept& kept = kept_.at(restored.sequence_id);
    for (size_t i = 0; i < restored.pages.size(); ++i) {
      const size_t at = (restored.first_page - kept.first_page + i) * options_.block_size;
      if (restored.first_page < kept.first_page || at + options_.block_size > kept.slots.size()) {
        return violate("pages are restored that were not kept");
      }
      const size_t page = static_cast<size_t>(restored.pages[i]);
      if (page_lives_[page]) violate("a page is restored that was never reported as freed");
      page_lives_[page] = true;
      std::copy_n(kept.slots.begin() + at, options_.block_size, slots_.begin() + page * options_.block_size);
    }
    num_tokens_restored_ += static_cast<int64_t>(restored.pages.size()) * options_.block_size;
  }
  for (const SequenceSlice& slice : plan.slices) kept_.erase(slice.sequence_id);
}

void FakeExecutor::violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void FakeExecutor::check_plan(const StepPlan& plan) {
  last_plan_.clear();
  for (const int32_t page : plan.freed_pages) page_lives_[static_cast<size_t>(page)] = false;
  int32_t num_tokens = 0;
  for (const SequenceSlice& slice : plan.slices) {
    const int32_t end = slice.first_position + slice.num_tokens;
    if (slice.num_tokens < 1 || slice.first_position < 0 || end > slice.num_known_tokens)
      violate("a slice without tokens");
    if (slice.num_pages * options_.block_size < end) violate("a page table does not cover its slice");
    for (int32_t i = 0; i < slice.num_pages; ++i) {
      if (slice.pages[i] < 0 || slice.pages[i] >= options_.num_pages) violate("a page id outside the pool");
    }
    if (slice.sample && end != slice.num_known_tokens) violate("a partial chunk is sampled");
    if (!slice.sample && end == slice.num_known_tokens && slice.sampling->max_tokens > 0)
      violate("a finished chunk is not");
    num_tokens += slice.num_tokens;
    last_plan_.push_back(slice.sequence_id);
  }
  if (num_tokens != plan.num_tokens) violate("num_tokens is not the sum of the slices");
  if (num_tokens > options_.max_num_batched_tokens) violate("more tokens than max_num_batched_tokens");
  if (static_cast<int32_t>(plan.slices.size()) > options_.max_num_seqs) violate("more slices than max_num_seqs");
  if (std::set<int64_t>(last_plan_.begin(), last_plan_.end()).size() != last_plan_.size())
    violate("a sequence twice in a plan");
}

int64_t FakeExecutor::slot(const SequenceSlice& slice, int32_t position) const {
  const int64_t page = slice.pages[position / options_.block_size];
  return page * options_.block_size + position % options_.block_size;
}

void FakeExecutor::check_reads(const SequenceSlice& slice, const std::vector<uint64_t>& content) {
  for (int32_t position = 0; position < slice.first_position; ++position) {
    ++num_positions_checked_;
    if (slots_[slot(slice, position)] == content[position]) continue;
    violate("sequence " + std::to_string(slice.sequence_id) + " reads wrong content at position " +
            std::to_string(position));
  }
}

void FakeExecutor::write(const SequenceSlice& slice, const std::vector<uint64_t>& content, std::set<int64_t>& written) {
  for (int32_t position = slice.first_position; position < slice.first_position + slice.num_tokens; ++position) {
    const int64_t at = slot(slice, position);
    if (!written.insert(at).second) violate("two sequences write one slot");
    if (position % options_.block_size == 0) {
      const auto page = static_cast<size_t>(slice.pages[position / options_.block_size]);
      if (page_lives_[page]) violate("a page is written anew and was never reported as freed");
      page_lives_[page] = true;
    }
    slots_[at] = content[position];
  }
}

SliceResult FakeExecutor::compute(const SequenceSlice& slice) const {
  SliceResult result;
  result.status = options_.slice_status(slice);
  if (!result.status.ok()) return result;
  const int32_t end = slice.first_position + slice.num_tokens;
  if (slice.prompt_logprobs) {
    for (int32_t position = slice.first_position; position < std::min(end, slice.num_prompt_tokens - 1); ++position) {
      TokenLogprobs score;
      score.token = slice.tokens[position + 1];
      score.logprob = logprob_of(hash_of(slice.tokens, position + 2));
      score.rank = 1;
      result.prompt_logprobs.push_back(score);
    }
  }
  if (!slice.sample) return result;
  const uint64_t hash = hash_of(slice.tokens, slice.num_known_tokens);
  result.sampled = true;
  result.token.token = next_token(options_, hash, slice.seed, *slice.sampling, slice.forbid_stop);
  result.token.logprob = logprob_of(extended(hash, result.token.token));
  result.token.rank = 1;
  return result;
}

}  // namespace assay::test
