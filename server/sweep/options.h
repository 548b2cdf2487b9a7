// What the user asked `assay sweep` for, checked.
//
// Threads: values. Errors: parse_options prints what is wrong (and what would be right) to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sweep/summary.h"

namespace assay::sweep {

// http://HOST[:PORT][/PATH] taken apart; a trailing "/" or "/v1" of the path is dropped.
struct Target {
  std::string host;
  std::string port;       // number or service name
  std::string base_path;  // "" or "/some/prefix"
  bool tls = false;
};

absl::StatusOr<Target> parse_url(const std::string& url);

// "ttft:500" in milliseconds; names ttft, tpot, e2el.
absl::StatusOr<GoodputLimits> parse_goodput(const std::vector<std::string>& limits);

struct SweepOptions {
  std::string url = "http://127.0.0.1:8000";
  Target target;
  std::string grpc_address;           // HOST:PORT; empty: the load is HTTP
  std::vector<int> concurrency;       // one level each; in rate mode at most one value, the cap
  std::vector<double> request_rates;  // not empty = rate mode, one level each
  double burstiness = 1.0;
  int64_t requests_per_level = 0;  // 0: by `seconds`, or the default of level_requests()
  double seconds = 0.0;
  int64_t warmup = 1;  // requests before each level, not in its numbers
  double timeout_s = 600.0;

  bool chat = false;
  std::string model;  // empty: the first the server lists
  std::string api_key;
  int64_t input_tokens = 1024;
  int64_t output_tokens = 256;
  int64_t shared_prefix_tokens = 0;
  std::string dataset_file, prompt_file;
  uint64_t seed = 0;
  bool openai_fields_only = false;  // leave out ignore_eos, cache_salt, return_token_ids
  bool certificate = false;

  std::vector<std::string> goodput_texts;
  GoodputLimits goodput;
  std::string output_dir;  // empty: print only
  std::string label;       // of the curve; empty: the model's name

  bool rate_mode() const { return !request_rates.empty(); }
};

struct CompareOptions {
  std::vector<std::string> files;
  std::string output_dir;  // empty: print only
};

using Command = std::variant<SweepOptions, CompareOptions>;

// Either a command or the exit status of a process that is done (help: 0, bad usage: 2). argv[0] is the program's name.
std::variant<Command, int> parse_options(int argc, char** argv);

}  // namespace assay::sweep
