// The command line of tools that load a model themselves: flags of their own, and every flag of `assay serve` that says
// what model, cache and meter are.
//
// Threads: pure functions, but for reading files that flags name. Errors: InvalidArgument that names the flag.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/serve_config.h"

namespace assay {

struct ToolFlag {
  const char* name;   // --name
  const char* value;  // what the help shows for the value; empty: a switch without one
  const char* help;
  const char* fallback = "";  // the value where the flag is not given
};

struct ToolArguments {
  std::map<std::string, std::string> own;  // every ToolFlag by name; switches: "on" or ""
  std::vector<std::string> positional;     // in front of the first flag
  ServeConfig config;
  bool help = false;  // --help was asked for; nothing else is valid

  const std::string& text(const char* name) const { return own.at(name); }
  bool on(const char* name) const { return !own.at(name).empty(); }
  // The value as a whole number from least to most.
  absl::StatusOr<int64_t> number(const char* name, int64_t least, int64_t most) const;
  // Likewise numbers with commas between them; at least one.
  absl::StatusOr<std::vector<int64_t>> numbers(const char* name, int64_t least, int64_t most) const;
};

// `arguments`: what follows the tool's name. The model folder must be there.
absl::StatusOr<ToolArguments> parse_tool_arguments(const std::vector<std::string>& arguments,
                                                   const std::vector<ToolFlag>& flags);

// One line for each flag.
std::string tool_flags_help(const std::vector<ToolFlag>& flags);

// A pool and settings: NAME[@KEY=VALUE...], keys as in a configuration file ("witcert@kv_outlier_pairs=4"), applied to
// a copy of `config`.
absl::StatusOr<ServeConfig> with_pool(const ServeConfig& config, const std::string& spec);

// At least one, and each with settings that with_pool takes.
absl::Status check_pools(const ServeConfig& config, const std::vector<std::string>& specs);

// "a,b" -> a, b; empty parts are dropped.
std::vector<std::string> split_list(const std::string& text);

// The file's text, not empty.
absl::StatusOr<std::string> read_text_file(const std::string& flag, const std::string& path);

}  // namespace assay
