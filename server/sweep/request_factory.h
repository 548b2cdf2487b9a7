// The requests of a run: path and body for any index, and the output length to expect.
//
// Threads: const, one thread. Errors: none.
#pragma once

#include <cstdint>
#include <string>

#include "server/sweep/options.h"
#include "server/sweep/prompts.h"

namespace assay::sweep {

struct LoadRequest {
  std::string path;  // of HTTP
  std::string body;  // JSON; for gRPC an encoded assay.v1.GenerateRequest
  int64_t requested_output_tokens = 0;  // 0: not fixed
};

// A JSON array with one user message.
std::string user_message(const std::string& content);

class RequestFactory {
 public:
  // `cache_salt` keeps the server's prefix cache from knowing an earlier run with the same seed.
  RequestFactory(const SweepOptions& options, std::string model, PromptPlan prompts, std::string cache_salt);

  LoadRequest request(uint64_t index) const;

 private:
  std::string http_body(const DatasetEntry& entry, int64_t output_tokens) const;
  std::string grpc_body(const DatasetEntry& entry, int64_t output_tokens) const;

  const SweepOptions& options_;
  std::string model_;
  PromptSource prompts_;
  std::string cache_salt_;
};

}  // namespace assay::sweep
