// What a prompt costs at this server, asked before the levels: by its /tokenize route, else by the prompt tokens that
// `usage` reports for short requests, else by an estimate that says so.
//
// Threads: the I/O thread. Errors: a missing route is no error; notes say what was used instead.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sweep/http_client.h"
#include "server/sweep/options.h"
#include "server/sweep/prompts.h"

namespace assay::sweep {

// The model to name in requests: --model, else the first one listed. Unavailable when the server cannot be asked.
boost::asio::awaitable<absl::StatusOr<std::string>> find_model(HttpClient& client, const SweepOptions& options);

struct Calibration {
  TokenCosts costs;
  std::vector<std::string> notes;
};

boost::asio::awaitable<Calibration> calibrate(HttpClient& client, const SweepOptions& options,
                                              const std::string& model);

}  // namespace assay::sweep
