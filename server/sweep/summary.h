// From the records of one level to its numbers. The definitions are here and in docs/load-testing.md, nowhere else:
//
//   start   when the request was due: its arrival in rate mode (so waiting for the client or the cap counts: no
//   coordinated
//           omission), the moment a slot was free in concurrency mode
//   TTFT    first chunk with text - start
//   E2EL    last chunk with text or a finish reason - start
//   TPOT    (E2EL - TTFT) / (output tokens - 1), requests of two tokens or more
//   ITL     every gap between neighbouring chunks with text, of all requests
//   steady window  concurrency mode: from the first moment the level's largest number of requests was in flight to the
//   last
//           such moment; rate mode: from the first end of a request to the last arrival (the whole level if there is
//           none)
//   throughput     tokens that arrived in the steady window / its length. A request's output tokens are spread evenly
//   over
//           its chunks; its prompt tokens count when its first token arrives
//   rates   completed requests / duration; duration = first start to last end
//
// Latencies and throughput are of completed requests only.
// Threads: pure. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/sweep/record.h"
#include "server/sweep/statistics.h"

namespace assay::sweep {

// Limits that a good request keeps, in milliseconds; absent = not asked.
struct GoodputLimits {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

struct Window {
  double begin_s = 0.0;
  double end_s = 0.0;
  int64_t in_flight = 0;  // the largest number of requests in flight
  double length_s() const { return end_s - begin_s; }
};

struct CertificateTally {
  int64_t received = 0;   // completed requests that carried one
  int64_t certified = 0;  // of them: every decode cell certified or exact
  int64_t metered_cells = 0;
  int64_t certified_cells = 0;
  double worst_tv = 0.0;
};

struct LevelSummary {
  int64_t sent = 0, completed = 0, rejected = 0, timed_out = 0, failed = 0;
  std::map<std::string, int64_t> kinds;              // every request is in exactly one
  std::map<std::string, std::string> kind_examples;  // the first detail of each kind that is not "completed"
  int64_t resent = 0, missing_usage = 0, missing_done = 0, empty_output = 0, token_mismatch = 0, wrong_length = 0;

  double duration_s = 0.0;
  Window window;
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of completed requests
  int64_t chunks = 0;                                              // with text, of completed requests
  double output_tokens_per_s = 0.0;                                // steady window
  double input_tokens_per_s = 0.0;                                 // steady window
  double whole_output_tokens_per_s = 0.0;                          // output_tokens / duration_s
  std::optional<double> offered_requests_per_s;                    // rate mode: requests / time of the last arrival
  double achieved_requests_per_s = 0.0;
  int64_t good = 0;  // completed within all limits
  std::optional<double> goodput_requests_per_s;

  Distribution ttft_ms, tpot_ms, itl_ms, e2el_ms;
  Distribution send_delay_ms;  // sent - start: what the client itself (or the cap) added, part of every latency above
  CertificateTally certificate;
};

// `rate_mode`: starts are planned arrivals and the offered rate is meaningful.
LevelSummary summarize(const std::vector<RequestRecord>& records, const GoodputLimits& limits, bool rate_mode);

// The steady window of these records, whatever their outcome.
Window steady_window(const std::vector<RequestRecord>& records, bool rate_mode);

}  // namespace assay::sweep
