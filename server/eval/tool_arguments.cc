#include "server/eval/tool_arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "server/config/flags.h"
#include "server/config/load.h"
#include "server/config/values.h"

namespace assay {
namespace {

const ToolFlag* find_tool_flag(const std::vector<ToolFlag>& flags, std::string_view argument) {
  if (argument.substr(0, 2) != "--") return nullptr;
  const std::string_view name = argument.substr(2, argument.find('=') - 2);
  for (const ToolFlag& flag : flags) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

// Moves the tool's own flags out of `arguments` into `own`.
absl::Status take_own(const std::vector<ToolFlag>& flags, std::vector<std::string>& arguments,
                      std::map<std::string, std::string>& own) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ToolFlag* flag = find_tool_flag(flags, arguments[i]);
    if (flag == nullptr) {
      rest.push_back(arguments[i]);
      continue;
    }
    const size_t equals = arguments[i].find('=');
    std::string& value = own[flag->name];
    if (flag->value[0] == '\0') {
      if (equals != std::string::npos)
        return absl::InvalidArgumentError(fmt::format("--{} takes no value", flag->name));
      value = "on";
    } else if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else {
      if (++i == arguments.size()) return absl::InvalidArgumentError(fmt::format("--{} needs a value", flag->name));
      value = arguments[i];
    }
  }
  arguments = std::move(rest);
  return absl::OkStatus();
}

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

absl::StatusOr<int64_t> ToolArguments::number(const char* name, int64_t least, int64_t most) const {
  const std::optional<int64_t> value = parse_integer(text(name));
  if (value && *value >= least && *value <= most) return *value;
  return absl::InvalidArgumentError(
      fmt::format("--{} must be a whole number from {} to {}, not \"{}\"", name, least, most, text(name)));
}

absl::StatusOr<std::vector<int64_t>> ToolArguments::numbers(const char* name, int64_t least, int64_t most) const {
  std::vector<int64_t> values;
  for (const std::string& part : split_list(text(name))) {
    const std::optional<int64_t> value = parse_integer(part);
    if (!value || *value < least || *value > most) {
      return absl::InvalidArgumentError(
          fmt::format("--{} must hold whole numbers from {} to {}, not \"{}\"", name, least, most, part));
    }
    values.push_back(*value);
  }
  if (values.empty()) return absl::InvalidArgumentError(fmt::format("--{} must hold at least one number", name));
  return values;
}

absl::StatusOr<ToolArguments> parse_tool_arguments(const std::vector<std::string>& arguments,
                                                   const std::vector<ToolFlag>& flags) {
  ToolArguments parsed;
  for (const ToolFlag& flag : flags) parsed.own[flag.name] = flag.fallback;
  std::vector<std::string> rest = arguments;
  while (!rest.empty() && rest.front().substr(0, 1) != "-") {
    parsed.positional.push_back(rest.front());
    rest.erase(rest.begin());
  }
  if (absl::Status status = take_own(flags, rest, parsed.own); !status.ok()) return status;
  absl::StatusOr<LoadedConfig> loaded = load_config(rest, environment());
  if (!loaded.ok()) return loaded.status();
  parsed.help = loaded->help;
  if (parsed.help) return parsed;
  if (absl::Status status = check_config(loaded->config); !status.ok()) return status;
  parsed.config = std::move(loaded->config);
  return parsed;
}

std::string tool_flags_help(const std::vector<ToolFlag>& flags) {
  std::string text;
  for (const ToolFlag& flag : flags) {
    text += fmt::format("  {:<26} {}", fmt::format("--{} {}", flag.name, flag.value), flag.help);
    text += flag.fallback[0] == '\0' ? "\n" : fmt::format(" [default: {}]\n", flag.fallback);
  }
  return text;
}

absl::StatusOr<ServeConfig> with_pool(const ServeConfig& config, const std::string& spec) {
  ServeConfig pool = config;
  size_t at = std::min(spec.find('@'), spec.size());
  pool.kv_pool = spec.substr(0, at);
  while (at < spec.size()) {
    const size_t end = std::min(spec.find('@', at + 1), spec.size());
    const std::string setting = spec.substr(at + 1, end - at - 1);
    const size_t equals = std::min(setting.find('='), setting.size());
    std::string name = setting.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    const Flag* flag = find_flag(name);
    if (flag == nullptr || equals == setting.size()) {
      return absl::InvalidArgumentError(fmt::format(
          "--kv-pool {}: \"{}\" is no setting; settings are KEY=VALUE with a key of `assay serve`", spec, setting));
    }
    absl::Status status = set_flag(*flag, {setting.substr(equals + 1)}, "--kv-pool " + spec + ": " + name, pool);
    if (!status.ok()) return status;
    at = end;
  }
  return pool;
}

absl::Status check_pools(const ServeConfig& config, const std::vector<std::string>& specs) {
  if (specs.empty()) return absl::InvalidArgumentError("--kv-pool must name at least one pool");
  for (const std::string& spec : specs) {
    if (const auto pool = with_pool(config, spec); !pool.ok()) return pool.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> read_text_file(const std::string& flag, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError(fmt::format("--{} FILE is missing", flag));
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || text.empty())
    return absl::InvalidArgumentError(fmt::format("--{} {}: cannot be read, or is empty", flag, path));
  return text;
}

}  // namespace assay
