#include "server/config/load.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "server/config/command_line.h"
#include "server/config/flags.h"
#include "server/config/values.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "ASSAY_";
// Variables of the project's own tests and scripts, which may be set around a server.
constexpr std::string_view kForeignVariables[] = {"ASSAY_REFERENCE_DATA", "ASSAY_BINARY"};

const Flag* flag_of_key(std::string_view key) {
  for (const Flag& flag : serve_flags()) {
    if (config_key(flag) == key) return &flag;
  }
  return nullptr;
}

const Flag* flag_of_variable(std::string_view name) {
  for (const Flag& flag : serve_flags()) {
    if (variable_name(flag) == name) return &flag;
  }
  return nullptr;
}

absl::StatusOr<std::string> scalar_text(const Json& value, const std::string& source) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  return absl::InvalidArgumentError(source + " must be a string, a number, true or false");
}

absl::StatusOr<std::vector<std::string>> value_texts(const Flag& flag, const Json& value, const std::string& source) {
  std::vector<std::string> texts;
  if (value.is_array() && is_list(flag)) {
    for (const Json& item : value) {
      if (!item.is_string()) return absl::InvalidArgumentError(source + " must be an array of strings");
      texts.push_back(item.get<std::string>());
    }
    return texts;
  }
  if (is_boolean(flag) != value.is_boolean()) {
    return absl::InvalidArgumentError(fmt::format("{}: {} is not {}", source, value.dump(),
                                                  is_boolean(flag) ? "true or false" : "a value of this key"));
  }
  absl::StatusOr<std::string> text = scalar_text(value, source);
  if (!text.ok()) return text.status();
  texts.push_back(*text);
  return texts;
}

// "line 3, column 7" of the byte at `offset`.
std::string place(const std::string& text, size_t offset) {
  const std::string_view before = std::string_view(text).substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1, before.size() - line_start + 1);
}

// Comments are fine, equal keys are not: only one of them could count.
absl::StatusOr<Json> parse_file_text(const std::string& text, const std::string& path) {
  std::set<std::string> keys;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(value.get<std::string>()).second) twice = value;
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, watch, true, /*ignore_comments=*/true);
  } catch (const Json::parse_error& error) {
    const size_t offset = error.byte > 0 ? error.byte - 1 : 0;  // counted from 1; past the end where something is missing
    return absl::InvalidArgumentError(
        offset < text.size() ? fmt::format("{}: not valid JSON at {}", path, place(text, offset))
                             : fmt::format("{}: not valid JSON: it ends too early, at {}", path, place(text, text.size())));
  } catch (const Json::out_of_range&) {
    return absl::InvalidArgumentError(path + ": holds a number that is too large");
  }
  if (!twice.empty()) return absl::InvalidArgumentError(fmt::format("{}: the key \"{}\" occurs twice", path, twice));
  if (!json.is_object()) return absl::InvalidArgumentError(path + ": the configuration must be one JSON object");
  return json;
}

absl::Status check_model_folder(const std::string& model) {
  namespace fs = std::filesystem;
  if (model.empty()) return absl::InvalidArgumentError("--model DIR is missing: which model folder shall be served?");
  if (fs::is_directory(model)) return absl::OkStatus();
  if (fs::exists(model)) return absl::InvalidArgumentError("--model " + model + " is a file; it must be a model folder");
  const bool looks_like_id = std::count(model.begin(), model.end(), '/') == 1 && model.front() != '.' && model.front() != '/';
  if (!looks_like_id) return absl::InvalidArgumentError("--model " + model + ": there is no such folder");
  const std::string name = model.substr(model.find('/') + 1);
  return absl::InvalidArgumentError(
      fmt::format("--model {0}: there is no such folder. This server opens folders and downloads nothing; if {0} is a model id "
                  "of a hub, fetch it first, for example\n    huggingface-cli download {0} --local-dir {1}\nand then start "
                  "with --model {1}", model, name));
}

absl::Status check_file(const char* flag, const std::string& path) {
  if (path.empty() || std::ifstream(path).good()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("--{} {}: cannot be read", flag, path));
}

absl::Status add_keys_of_file(const std::string& path, std::vector<std::string>& keys) {
  if (absl::Status status = check_file("api-key-file", path); !status.ok()) return status;
  const size_t num_before = keys.size();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find_last_not_of(" \t\r");
    if (end != std::string::npos && line.front() != '#') keys.push_back(line.substr(0, end + 1));
  }
  if (keys.size() > num_before) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("--api-key-file {} holds no key; each line is one, but for empty lines and "
                                                "comments (#)", path));
}

}  // namespace

absl::Status apply_json(const std::string& text, const std::string& path, ServeConfig& config) {
  const absl::StatusOr<Json> json = parse_file_text(text, path);
  if (!json.ok()) return json.status();
  for (const auto& [key, value] : json->items()) {
    const Flag* flag = flag_of_key(key);
    if (flag == nullptr) return absl::InvalidArgumentError(fmt::format("{}: unknown key \"{}\" (see `assay help serve`)", path, key));
    const std::string source = fmt::format("{}: key \"{}\"", path, key);
    absl::StatusOr<std::vector<std::string>> texts = value_texts(*flag, value, source);
    if (!texts.ok()) return texts.status();
    if (absl::Status status = set_flag(*flag, *texts, source, config); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_file(const std::string& path, ServeConfig& config) {
  if (std::filesystem::is_directory(path)) {
    return absl::InvalidArgumentError("--config " + path + " is a folder; it must be a JSON file");
  }
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError("--config " + path + ": cannot be read");
  std::stringstream text;
  text << file.rdbuf();
  return apply_json(text.str(), path, config);
}

absl::Status apply_environment(const std::vector<std::string>& environment, ServeConfig& config) {
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || entry.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    const std::string name = entry.substr(0, equals), value = entry.substr(equals + 1);
    if (name == "ASSAY_CONFIG" || std::count(std::begin(kForeignVariables), std::end(kForeignVariables), name) > 0) continue;
    const Flag* flag = flag_of_variable(name);
    // Kubernetes sets NAME_PORT=tcp://... for a service called NAME.
    const bool service_link = value.compare(0, 6, "tcp://") == 0 || name.find("_SERVICE_") != std::string::npos;
    if (service_link) {
      return absl::InvalidArgumentError(fmt::format("{}={} was set by Kubernetes for a service called assay; set "
                                                    "enableServiceLinks: false, or rename the service", name, value));
    }
    if (flag == nullptr) {
      return absl::InvalidArgumentError(fmt::format("unknown environment variable {} (see `assay help serve`)", name));
    }
    std::vector<std::string> texts;
    std::stringstream parts(value);
    for (std::string part; is_list(*flag) && std::getline(parts, part, ',');) texts.push_back(part);
    if (!is_list(*flag)) texts.push_back(value);
    if (absl::Status status = set_flag(*flag, texts, name, config); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedConfig> load_config(const std::vector<std::string>& arguments,
                                         const std::vector<std::string>& environment) {
  absl::StatusOr<CommandLine> line = parse_command_line(arguments);
  if (!line.ok()) return line.status();
  LoadedConfig loaded;
  loaded.help = line->help;
  if (loaded.help) return loaded;
  std::string file = line->config_file;
  for (const std::string& entry : environment) {
    if (file.empty() && entry.compare(0, 13, "ASSAY_CONFIG=") == 0) file = entry.substr(13);
  }
  if (!file.empty()) {
    if (absl::Status status = apply_file(file, loaded.config); !status.ok()) return status;
  }
  if (absl::Status status = apply_environment(environment, loaded.config); !status.ok()) return status;
  for (const auto& [name, texts] : line->values) {
    absl::Status status = set_flag(*find_flag(name), texts, "--" + name, loaded.config);
    if (!status.ok()) return status;
  }
  if (!loaded.config.api_key_file.empty()) {
    absl::Status status = add_keys_of_file(loaded.config.api_key_file, loaded.config.api_keys);
    if (!status.ok()) return status;
  }
  return loaded;
}

absl::Status check_config(const ServeConfig& config) {
  if (absl::Status status = check_model_folder(config.model); !status.ok()) return status;
  if (config.ssl_certfile.empty() != config.ssl_keyfile.empty()) {
    return absl::InvalidArgumentError("--ssl-certfile and --ssl-keyfile belong together; one of them is missing");
  }
  if (!parse_numbers(config.kv_exact_layers)) {
    return absl::InvalidArgumentError(fmt::format("--kv-exact-layers: \"{}\" is not a list of layers such as 0,5-7",
                                                  fmt::join(config.kv_exact_layers, ",")));
  }
  if (config.block_size % 16 != 0) return absl::InvalidArgumentError("--block-size must be a multiple of 16");
  if (config.grpc_port != 0 && (config.grpc_port == config.port || config.grpc_port == config.metrics_port)) {
    return absl::InvalidArgumentError("--grpc-port equals --port or --metrics-port; gRPC needs a port of its own (0 turns it off)");
  }
  if (config.metrics_port != 0 && config.metrics_port == config.port) {
    return absl::InvalidArgumentError("--metrics-port equals --port; leave it out to serve /metrics on --port");
  }
  for (const auto& [flag, path] : {std::pair<const char*, std::string>{"chat-template", config.chat_template},
                                   {"ssl-certfile", config.ssl_certfile},
                                   {"ssl-keyfile", config.ssl_keyfile}}) {
    if (absl::Status status = check_file(flag, path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Json config_json(const ServeConfig& config) {
  Json json = Json::object();
  for (const Flag& flag : serve_flags()) {
    const std::string text = flag_text(flag, config);
    const std::string key = config_key(flag);
    if (flag.secret || text.empty()) continue;
    if (is_list(flag)) {
      json[key] = config.*std::get<std::vector<std::string> ServeConfig::*>(flag.target);
    } else if (is_boolean(flag)) {
      json[key] = text == "true";
    } else if (const auto* number = std::get_if<double ServeConfig::*>(&flag.target)) {
      json[key] = config.**number;
    } else if (std::holds_alternative<int32_t ServeConfig::*>(flag.target)) {
      json[key] = config.*std::get<int32_t ServeConfig::*>(flag.target);
    } else {
      json[key] = text;
    }
  }
  return json;
}

}  // namespace assay
