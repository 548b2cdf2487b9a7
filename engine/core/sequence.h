// One continuation of one request, from submission to its terminal event. Plain state; engine/core/engine_loop changes
// it.
//
// Owns: its generated tokens; shares the request (and the prompt in it) with its siblings.
// Threads: the engine thread. Errors: none.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/api/events.h"
#include "engine/api/request.h"
#include "engine/core/certificate_tally.h"
#include "engine/schedule/scheduler.h"

namespace assay {

using TimePoint = std::chrono::steady_clock::time_point;

class Sequence {
 public:
  // Who goes first: lower priority value, then earlier arrival. Ids are given in order of arrival, so they break every
  // tie.
  struct Rank {
    int32_t priority = 0;
    SequenceId id = 0;
    auto operator<=>(const Rank&) const = default;
  };

  Sequence(SequenceId id, int32_t index, int64_t stream_id, std::shared_ptr<const Request> request, uint64_t seed,
           TimePoint submitted);

  Rank rank() const { return {request->priority, id}; }
  int32_t num_prompt() const { return static_cast<int32_t>(request->prompt.size()); }
  int32_t num_generated() const { return num_tokens() - num_prompt(); }
  int32_t num_tokens() const { return static_cast<int32_t>(tokens().size()); }
  // Prompt, then generated. The prompt itself is copied only once there is something to append to it.
  const std::vector<int32_t>& tokens() const { return own_tokens_.empty() ? request->prompt : own_tokens_; }
  void append(int32_t token, TimePoint now);

  // Prompt scores are owed by sequence 0 alone, once.
  bool owes_prompt_logprobs() const {
    return index == 0 && request->sampling.prompt_logprobs >= 0 && !prompt_logprobs_sent;
  }
  bool prompt_computed() const { return num_computed >= num_prompt(); }

  SequenceView view() const;
  SequenceUsage usage(TimePoint now) const;

  const SequenceId id;  // unique in the engine's life
  const int32_t index;  // among its siblings
  const int64_t stream_id;
  const std::shared_ptr<const Request> request;
  const uint64_t seed;
  const TimePoint submitted;

  bool running = false;
  int32_t num_computed = 0;  // tokens whose K and V are in its pages
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;
  std::optional<TimePoint> first_scheduled;
  std::optional<TimePoint> first_token;
  std::vector<TokenLogprobs> prompt_logprobs;  // by position, filled chunk by chunk
  bool prompt_logprobs_sent = false;
  CertificateTally certificate;

 private:
  std::vector<int32_t> own_tokens_;  // empty: nothing generated yet
};

}  // namespace assay
