// Command line, environment, file and defaults -> one checked configuration. Precedence: flag > environment > file > default.
//
// Threads: pure, but for reading the file. Errors: InvalidArgument that names the flag, key or variable at fault.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "server/config/serve_config.h"

namespace assay {

struct LoadedConfig {
  ServeConfig config;
  bool help = false;  // --help was asked for; nothing else is valid
};

// `arguments`: what follows `assay serve`. `environment`: "NAME=value" entries; those without the ASSAY_ prefix are ignored.
// The keys of --api-key-file are among api_keys afterwards. A file that cannot be read or holds no key is an error, as is an empty
// key: who asks for keys must not get an open server.
absl::StatusOr<LoadedConfig> load_config(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment);

// Keys of a configuration file (JSON with comments, no key twice) into `config`.
absl::Status apply_file(const std::string& path, ServeConfig& config);
absl::Status apply_json(const std::string& text, const std::string& path, ServeConfig& config);
absl::Status apply_environment(const std::vector<std::string>& environment, ServeConfig& config);

// What no single flag can know: combinations, files that must exist, the model folder.
absl::Status check_config(const ServeConfig& config);

// The effective configuration as a configuration file, for the log and /server_info: without secrets, and without keys that have no
// value, which no file could give.
nlohmann::ordered_json config_json(const ServeConfig& config);

// All flags as help text, and as the table of docs/configuration.md.
std::string serve_help();
std::string configuration_markdown();

}  // namespace assay
