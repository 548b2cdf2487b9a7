// The one table of flags. From it come the command line, the keys of the configuration file, the environment variables,
// `assay help serve`, the configuration in /server_info and docs/configuration.md.
//
// Threads: the table is immutable; functions are pure.
// Errors: InvalidArgument that names the flag and says what would be right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "server/config/serve_config.h"

namespace assay {

using FlagTarget =
    std::variant<std::string ServeConfig::*, std::vector<std::string> ServeConfig::*, bool ServeConfig::*,
                 int32_t ServeConfig::*, double ServeConfig::*, std::optional<uint64_t> ServeConfig::*,
                 ByteSize ServeConfig::*, std::optional<ByteSize> ServeConfig::*, Duration ServeConfig::*>;

struct Flag {
  const char* name;   // --name
  FlagTarget target;  // its default is that of a default ServeConfig
  const char* group;
  const char* value;  // what the help shows for the value; empty for booleans
  const char* help;
  std::vector<std::string> choices = {};  // the only legal values
  int64_t minimum = 0;                    // of numbers; fractions (double) must be above it
  int64_t maximum = INT32_MAX;
  const char* default_text = nullptr;  // shown instead of the value, where the default is worked out later
  bool secret = false;                 // never printed
  bool filled = false;  // given without a value, or with an empty one, it is refused: it would say less than was meant
  bool from_minimum = false;  // of fractions: the minimum itself is legal too
};

const std::vector<Flag>& serve_flags();
const Flag* find_flag(std::string_view name);  // by flag name ("max-model-len")

std::string config_key(const Flag& flag);    // max_model_len
std::string variable_name(const Flag& flag); // ASSAY_MAX_MODEL_LEN

bool is_list(const Flag& flag);
bool is_boolean(const Flag& flag);

// Parses `texts` (one text unless the flag is a list) into `config`. `source` begins the error message, e.g. "--port".
absl::Status set_flag(const Flag& flag, const std::vector<std::string>& texts, const std::string& source, ServeConfig& config);

// The value as text that set_flag would take; lists joined by commas. Secrets: "set" or "".
std::string flag_text(const Flag& flag, const ServeConfig& config);

// Column "default" of help and docs.
std::string default_text(const Flag& flag);

}  // namespace assay
