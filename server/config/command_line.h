// The command line of `assay serve`, parsed by CLI11, which is included nowhere else.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace assay {

struct CommandLine {
  std::map<std::string, std::vector<std::string>> values;  // flag name -> texts
  std::string config_file;  // empty: none was given
  bool help = false;
};

// Unknown flags and missing values are InvalidArgument.
absl::StatusOr<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace assay
