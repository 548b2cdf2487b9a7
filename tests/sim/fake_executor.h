// An executor without a model: the next token is a hash of the tokens before it and the sequence's seed, so any
// batching, chunking, sharing and preemption must give the text that run_alone gives.
//
// It also keeps a shadow of the KV cache: for each slot of each page, the hash of the token prefix (and salt) whose K
// and V it would hold. Every slice is checked to read right content at every position before its first, which is what
// finds a page shared wrongly, freed too early or written twice. The first violation is kept in words.
//
// Threads: as Executor; `violation` and `last_plan` between steps on the stepping thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/execute/executor.h"

namespace assay::test {

struct FakeModelOptions {
  int32_t vocab_size = 16;
  std::vector<int32_t> eos_token_ids = {0};
  int32_t max_model_len = 64;
  int32_t block_size = 4;
  int32_t num_pages = 64;
  bool keeps_rows = false;  // of preempted sequences
  int32_t max_num_seqs = 1 << 20;  // limits every plan must keep
  int32_t max_num_batched_tokens = 1 << 20;
  std::function<uint64_t(const SamplingParams&)> salt_of = [](const SamplingParams&) { return uint64_t{0}; };
  std::function<absl::Status()> before_step = [] { return absl::OkStatus(); };  // failures, delays
  // Not OK: the slice alone fails, as with logits that are not finite.
  std::function<absl::Status(const SequenceSlice&)> slice_status = [](const SequenceSlice&) { return absl::OkStatus(); };
};

// What a request gives when it is alone: its tokens (the stop token included), and how it ends.
struct Continuation {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kLength;
  std::optional<int32_t> stop_token;
};

// `max_tokens` and the like as resolved by submit; `context` = tokens that fit, prompt + generated.
Continuation run_alone(const FakeModelOptions& model, const Request& request, uint64_t sequence_seed, int32_t context);

// Score that the fake model gives to the token at `position` of `tokens`.
float fake_logprob(const std::vector<int32_t>& tokens, int32_t position);

class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(FakeModelOptions options);

  absl::StatusOr<StepResult> execute(const StepPlan& plan) override;
  KeptRows kept_rows(int64_t sequence_id) override;
  const ModelInfo& model() const override { return model_; }
  const PoolInfo& pool() const override { return pool_; }

  const std::string& violation() const { return violation_; }
  const std::vector<int64_t>& last_plan() const { return last_plan_; }  // sequence ids
  int64_t num_positions_checked() const { return num_positions_checked_; }
  int64_t num_tokens_restored() const { return num_tokens_restored_; }

 private:
  void violate(const std::string& what);
  void check_plan(const StepPlan& plan);
  void park_and_restore(const StepPlan& plan);
  void check_reads(const SequenceSlice& slice, const std::vector<uint64_t>& content);
  void write(const SequenceSlice& slice, const std::vector<uint64_t>& content, std::set<int64_t>& written);
  SliceResult compute(const SequenceSlice& slice) const;
  int64_t slot(const SequenceSlice& slice, int32_t position) const;

  const FakeModelOptions options_;
  ModelInfo model_;
  PoolInfo pool_;
  std::vector<uint64_t> slots_;  // [num_pages x block_size] hash of what is stored, 0 = never written
  std::string violation_;
  std::vector<int64_t> last_plan_;
  struct Kept {
    int32_t first_page = 0;
    std::vector<uint64_t> slots;
  };
  std::map<int64_t, Kept> kept_;  // by sequence
  std::vector<bool> page_lives_;         // a page that was written and not reported as freed since
  int64_t num_positions_checked_ = 0;
  int64_t num_tokens_restored_ = 0;
};

}  // namespace assay::test
