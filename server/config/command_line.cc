#include "server/config/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "server/config/flags.h"

namespace assay {
namespace {

// Registers every row; results are read back by name.
void add_flags(CLI::App& app) {
  for (const Flag& flag : serve_flags()) {
    const std::string option = std::string("--") + flag.name;
    if (is_boolean(flag)) {
      app.add_flag(option + ",!--no-" + flag.name);
    } else {
      CLI::Option* added = app.add_option(option)->expected(1)->allow_extra_args(false);
      added->multi_option_policy(is_list(flag) ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

}  // namespace

absl::StatusOr<CommandLine> parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  CommandLine result;
  app.set_help_flag();
  app.add_flag("-h,--help", result.help);
  app.add_option("--config", result.config_file);
  std::string folder;
  app.add_option("folder", folder);
  add_flags(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(std::string(error.what()) + " (see `assay help serve`)");
  }
  if (app.get_option("--config")->count() > 0 && result.config_file.empty()) {
    return absl::InvalidArgumentError("--config needs a value that is not empty");
  }
  for (const Flag& flag : serve_flags()) {
    const CLI::Option* option = app.get_option(std::string("--") + flag.name);
    if (option->count() > 0) result.values[flag.name] = option->reduced_results();
  }
  if (!folder.empty() && result.values.count("model") > 0) {
    return absl::InvalidArgumentError("the model folder is given twice: \"" + folder + "\" and --model");
  }
  if (!folder.empty()) result.values["model"] = {folder};
  return result;
}

}  // namespace assay
