#include <fmt/format.h>

#include <algorithm>

#include "server/config/flags.h"
#include "server/config/load.h"

namespace assay {
namespace {

std::string left_column(const Flag& flag) {
  if (is_boolean(flag)) return fmt::format("--[no-]{}", flag.name);
  return fmt::format("--{} {}", flag.name, flag.value);
}

// Breaks `text` at spaces into lines of at most `width`, each after the first indented.
std::string wrap(const std::string& text, size_t width, size_t indent) {
  std::string result, line;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, end - start);
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      result += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    start = end + 1;
  }
  return result + line;
}

std::string full_help(const Flag& flag) {
  std::string help = flag.help;
  if (!flag.choices.empty()) help += fmt::format(" ({})", fmt::join(flag.choices, ", "));
  const std::string value = default_text(flag);
  return value.empty() ? help : fmt::format("{} [default: {}]", help, value);
}

}  // namespace

std::string serve_help() {
  std::string text =
      "assay serve DIR [flags]: serve a model folder over HTTP.\n\n"
      "Every flag is also a key of the JSON configuration file (--config FILE; max_model_len for --max-model-len) and an\n"
      "environment variable (ASSAY_MAX_MODEL_LEN; lists with commas). A flag wins over the environment, that over the file.\n"
      "Sizes take KiB, MiB, GiB; times take ms, s, min.\n";
  std::string group;
  for (const Flag& flag : serve_flags()) {
    if (group != flag.group) text += fmt::format("\n{}\n", flag.group);
    group = flag.group;
    text += fmt::format("  {:<34} {}\n", left_column(flag), wrap(full_help(flag), 84, 37));
  }
  return text;
}

std::string configuration_markdown() {
  std::string text = "| flag | key | environment | default | meaning |\n|---|---|---|---|---|\n";
  for (const Flag& flag : serve_flags()) {
    std::string meaning = flag.help;
    if (!flag.choices.empty()) meaning += fmt::format(" ({})", fmt::join(flag.choices, ", "));
    text += fmt::format("| `{}` | `{}` | `{}` | {} | {} |\n", left_column(flag), config_key(flag), variable_name(flag),
                        default_text(flag), meaning);
  }
  return text;
}

}  // namespace assay
