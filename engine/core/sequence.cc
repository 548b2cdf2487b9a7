#include "engine/core/sequence.h"

#include <utility>

namespace assay {

Sequence::Sequence(SequenceId id, int32_t index, int64_t stream_id, std::shared_ptr<const Request> request,
                   uint64_t seed, TimePoint submitted)
    : id(id), index(index), stream_id(stream_id), request(std::move(request)), seed(seed), submitted(submitted) {
  if (owes_prompt_logprobs()) prompt_logprobs.resize(num_prompt());
}

void Sequence::append(int32_t token, TimePoint now) {
  if (own_tokens_.empty()) own_tokens_ = request->prompt;
  own_tokens_.push_back(token);
  if (!first_token) first_token = now;
}

SequenceView Sequence::view() const {
  return {.id = id,
          .tokens = tokens().data(),
          .num_tokens = num_tokens(),
          .num_computed = num_computed,
          .cache_salt = &request->cache_salt,
          .use_prefix_cache = !owes_prompt_logprobs()};
}

SequenceUsage Sequence::usage(TimePoint now) const {
  const TimePoint scheduled = first_scheduled.value_or(now);
  const TimePoint token = first_token.value_or(now);
  const auto seconds = [](TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); };
  return {.prompt_tokens = num_prompt(),
          .cached_tokens = cached_tokens,
          .completion_tokens = num_generated(),
          .preemptions = preemptions,
          .queue_s = seconds(submitted, scheduled),
          .prefill_s = seconds(scheduled, token),
          .decode_s = seconds(token, now)};
}

}  // namespace assay
