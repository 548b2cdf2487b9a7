// What a running generation says, in text: deltas per choice, then one final event per choice.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/events.h"

namespace assay {

// One token with its score, as logprobs reports need it. `logprob` is absent for the first token of a prompt.
struct TokenScore {
  int32_t token = 0;
  std::string bytes;  // what the token stands for; may be a part of a character
  std::optional<float> logprob;
  std::vector<std::pair<int32_t, float>> top;  // most probable first
  int32_t text_offset = 0;                     // characters (code points) before it in the choice's text
};

struct TextEvent {
  int32_t choice = 0;                 // prompt index x n + sequence
  std::string text;                   // valid UTF-8; the concatenation over a choice's events is its text
  std::shared_ptr<const std::vector<TokenScore>> prompt_scores;  // with echo and logprobs, in the first event: they come before
                                                                 // `scores`, and are those of every choice of the prompt
  std::vector<TokenScore> scores;     // when logprobs were asked for: of the tokens whose text is in `text`
  std::vector<int32_t> token_ids;     // generated ids since the last event of this choice
  int32_t completion_tokens = 0;      // of this choice so far

  std::optional<FinishReason> finish;                            // in the last event of the choice
  std::variant<std::monostate, int32_t, std::string> stop_reason;  // the stop id or string that ended it
};

struct TextUsage {
  int64_t prompt_tokens = 0;  // each prompt once
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t total_tokens() const { return prompt_tokens + completion_tokens; }
};

}  // namespace assay
