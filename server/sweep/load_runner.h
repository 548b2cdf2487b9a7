// Drives one level: sends requests in a closed loop (concurrency mode) or when they are due (rate mode) and records
// each.
//
// Owns: nothing but the run in progress. Threads: everything runs in the io_context that run() drives, on the caller's
// thread; a request is a coroutine. Errors: every request ends in a record.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <vector>

#include "server/sweep/client_load.h"
#include "server/sweep/http_client.h"
#include "server/sweep/load_client.h"
#include "server/sweep/record.h"
#include "server/sweep/request_factory.h"

namespace assay::sweep {

struct LevelPlan {
  int concurrency = 0;             // requests in flight; in rate mode the cap, 0 = none
  std::vector<double> arrivals_s;  // not empty = rate mode: when each request is due
  int64_t requests = 0;            // concurrency mode: how many, or
  double seconds = 0.0;            // for how long new ones are started
  double timeout_s = 600.0;
  uint64_t first_index = 0;  // of the requests, for the factory
};

struct LevelProgress {
  int64_t sent = 0, ended = 0, tokens = 0;
  double elapsed_s = 0.0;
};

struct LevelRun {
  std::vector<RequestRecord> records;  // in order of their end
  ClientLoad client;
};

using RequestMaker = std::function<LoadRequest(uint64_t index)>;
using ProgressHandler = std::function<void(const LevelProgress&)>;

// Restarts `clock` and blocks until every request has ended. `on_progress`, if set, is called about once a second.
LevelRun run_level(boost::asio::io_context& io, LoadClient& client, RunClock& clock, const RequestMaker& make,
                   const LevelPlan& plan, const ProgressHandler& on_progress);

}  // namespace assay::sweep
