// What the client saw of one request. All times are seconds of one steady clock since the start of the level.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay::sweep {

enum class Outcome {
  kCompleted,  // the stream ended as the protocol says
  kRejected,   // 429 or 503: the server refused because of load
  kTimedOut,   // over --timeout; the connection was closed
  kFailed,     // everything else; `kind` says what
};

// What was odd about a request that may still be completed; such requests are counted, never hidden.
struct Anomalies {
  bool resent = false;          // TransferEnd::resent
  bool missing_usage = false;   // tokens were counted from the chunks instead
  bool missing_done = false;    // a finish reason and a clean end, but no [DONE]
  bool empty_output = false;    // no chunk had text: no time to first token
  bool token_mismatch = false;  // usage contradicts what was streamed
  bool wrong_length = false;    // not the exact output length that was asked for
};

// The part of the server's certificate that the sweep adds up (docs/load-testing.md).
struct CertificateRecord {
  bool certified = false;
  double worst_tv = 0.0;
  int64_t metered_cells = 0;
  int64_t certified_cells = 0;
};

struct RequestRecord {
  Outcome outcome = Outcome::kFailed;
  std::string kind;     // "completed", "http_429", "timeout", "connection_refused", ...
  std::string detail;   // one sentence for people; may be empty
  int http_status = 0;  // 0: no response header arrived

  double scheduled_s = 0.0;    // when it should have been sent: arrival in rate mode, free slot in concurrency mode
  double sent_s = 0.0;         // when it was handed to the connection pool
  double end_s = 0.0;          // when the client had its last byte, or gave up
  double last_choice_s = 0.0;  // arrival of the last chunk with text or a finish reason
  std::vector<double> text_times_s;  // arrival of each chunk with text, ascending

  std::optional<int64_t> usage_prompt_tokens;
  std::optional<int64_t> usage_output_tokens;
  std::optional<int64_t> streamed_token_ids;  // where the server streams token ids
  int64_t cached_tokens = 0;
  int64_t requested_output_tokens = 0;
  std::string finish_reason;
  Anomalies anomalies;
  std::optional<CertificateRecord> certificate;

  // Tokens by `usage`, else one per chunk with text.
  int64_t output_tokens() const {
    return usage_output_tokens.value_or(streamed_token_ids.value_or(static_cast<int64_t>(text_times_s.size())));
  }
};

}  // namespace assay::sweep
