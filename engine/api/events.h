// What the engine says of a running request. Every sequence of a request gets zero or more token events and then exactly one
// terminal event (`finish` set). After the terminal event of its last sequence a stream says nothing more.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/certificate.h"

namespace assay {

// Log probabilities (natural logarithm) at one position.
struct TokenLogprobs {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;                            // 1 = the most probable token
  std::vector<std::pair<int32_t, float>> top;  // most probable first, as many as were asked for
};

enum class FinishReason {
  kStop,    // an end-of-sequence id, a stop id, or Stream::stop (a stop string seen by the text layer)
  kLength,  // max_tokens or the context is full
  kAbort,   // cancelled by the client
  kError,   // `status` says why
};

// Where the time of a sequence went, in seconds, and what it used; valid in its terminal event.
// queue + prefill + decode = end to end.
struct SequenceUsage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // prompt tokens served from the prefix cache at first admission
  int32_t completion_tokens = 0;
  int32_t preemptions = 0;
  double queue_s = 0.0;    // submit -> first scheduled
  double prefill_s = 0.0;  // first scheduled -> first token
  double decode_s = 0.0;   // first token -> terminal event
};

struct Event {
  int32_t sequence = 0;  // 0 <= sequence < Request::num_sequences

  std::optional<int32_t> token;            // one generated token, the stop token included
  std::optional<TokenLogprobs> logprobs;   // with `token`, when asked for
  // Before the first token event of sequence 0, when asked for: entry i scores prompt position i; entry 0 scores nothing.
  std::vector<TokenLogprobs> prompt_logprobs;

  std::optional<FinishReason> finish;      // set in the terminal event, which may carry the last token as well
  std::optional<int32_t> stop_token;       // the id that ended it, when finish = kStop by id (then `token` is that id too)
  absl::Status status;                     // not OK exactly when finish = kError
  SequenceUsage usage;                     // valid in the terminal event
  std::optional<CertificateReport> certificate;  // in the terminal event, when the request asked for a report
};

}  // namespace assay
