// What the service tells operations about each request. Implemented by server/ops/metrics.
//
// Threads: any; implementations must not block.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/events.h"

namespace assay {

struct RequestParameters {
  int32_t n = 1;
  int32_t max_tokens = 0;
};

struct SequenceReport {
  SequenceUsage usage;
  FinishReason finish = FinishReason::kStop;
  double end_to_end_s = 0.0;  // submit -> terminal event seen by the service
};

class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void admitted(const RequestParameters& parameters) = 0;
  virtual void rejected(const std::string& reason) = 0;      // queue_full, unavailable, invalid_request
  virtual void first_token(double seconds_since_submit) = 0;
  virtual void next_token(double seconds_since_previous) = 0;
  virtual void sequence_finished(const SequenceReport& report) = 0;
  // After the last sequence of a request: the most tokens any of them generated.
  virtual void request_finished(int32_t most_generated_tokens) = 0;
};

}  // namespace assay
