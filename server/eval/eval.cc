#include "server/eval/eval.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "server/eval/needle.h"
#include "server/eval/progress.h"
#include "server/eval/report.h"
#include "server/eval/teacher_forced.h"
#include "server/eval/tool_arguments.h"
#include "server/ops/log.h"

namespace assay {
namespace {

const std::vector<ToolFlag>& eval_flags() {
  static const std::vector<ToolFlag> flags = {
      {"kv-pool", "P[,P...]",
       "pools to compare, the first is the reference; settings behind @: certified@kv_bound=e-form", "exact,certified"},
      {"contexts", "N[,N...]", "needle: tokens of the prompts", "1024,2048,4096"},
      {"prompts", "N", "needle: prompts of each context", "20"},
      {"max-tokens", "N", "needle: tokens of an answer at most", "32"},
      {"seed", "N", "needle: of the prompts", "1"},
      {"text", "FILE", "perplexity, divergence: the text"},
      {"context", "N", "perplexity, divergence: tokens of a window", "2048"},
      {"tokens", "N", "perplexity, divergence: tokens of the text at most; 0 = all", "0"},
      {"chunk", "N", "tokens computed at once, exact among themselves [default: needle whole prompts, else 32]"},
      {"json", "", "the result as JSON"},
  };
  return flags;
}

void print_help() {
  std::fputs(
      "assay eval WHAT --model DIR [--kv-pool P[,P...]] ...: compares pools on your model.\n\n"
      "  needle       finds a number hidden in long prose? Greedy, prompts made from word lists\n"
      "  perplexity   of the text in --text FILE\n"
      "  divergence   perplexity, and whole distributions against those of the first pool: KL divergence, the same "
      "first\n"
      "               token, the same five first tokens\n\n",
      stdout);
  std::fputs(tool_flags_help(eval_flags()).c_str(), stdout);
  std::fputs("\nAnd the flags of `assay serve` for model and cache (--threads, --kv-tau, --block-size, ...).\n",
             stdout);
}

int failed(const absl::Status& status, int code) {
  std::fprintf(stderr, "assay eval: %s\n", std::string(status.message()).c_str());
  return code;
}

absl::StatusOr<NeedleOptions> needle_options(const ToolArguments& arguments) {
  NeedleOptions options;
  const auto contexts = arguments.numbers("contexts", 64, 1 << 24);
  const auto prompts = arguments.number("prompts", 1, 1'000'000),
             max_tokens = arguments.number("max-tokens", 1, 1 << 16);
  const auto seed = arguments.number("seed", 0, INT32_MAX);
  for (const absl::Status& status : {contexts.status(), prompts.status(), max_tokens.status(), seed.status()}) {
    if (!status.ok()) return status;
  }
  options = {*contexts, *prompts, *max_tokens, static_cast<uint64_t>(*seed), 0};
  if (!arguments.on("chunk")) return options;
  const auto chunk = arguments.number("chunk", 1, 1 << 24);
  if (!chunk.ok()) return chunk.status();
  options.chunk = *chunk;
  return options;
}

absl::StatusOr<TextOptions> text_options(const ToolArguments& arguments, bool divergence) {
  const auto context = arguments.number("context", 2, 1 << 24), tokens = arguments.number("tokens", 0, INT32_MAX);
  absl::StatusOr<int64_t> chunk = int64_t{32};
  if (arguments.on("chunk")) chunk = arguments.number("chunk", 1, 1 << 24);
  for (const absl::Status& status : {context.status(), tokens.status(), chunk.status()}) {
    if (!status.ok()) return status;
  }
  return TextOptions{*context, *chunk, *tokens, divergence};
}

int run_needle_command(const ToolArguments& arguments, const std::vector<std::string>& specs,
                       const Tokenizer& tokenizer) {
  const absl::StatusOr<NeedleOptions> options = needle_options(arguments);
  if (!options.ok()) return failed(options.status(), 2);
  const auto results = run_needle(arguments.config, specs, tokenizer, *options, make_progress());
  if (!results.ok()) return failed(results.status(), 1);
  std::fputs((arguments.on("json") ? needle_json(*results) : needle_table(*results)).c_str(), stdout);
  return 0;
}

int run_text_command(const ToolArguments& arguments, const std::vector<std::string>& specs, const Tokenizer& tokenizer,
                     bool divergence) {
  const absl::StatusOr<TextOptions> options = text_options(arguments, divergence);
  if (!options.ok()) return failed(options.status(), 2);
  const absl::StatusOr<std::string> text = read_text_file("text", arguments.text("text"));
  if (!text.ok()) return failed(text.status(), 2);
  const auto results = run_teacher_forced(arguments.config, specs, tokenizer, *text, *options, make_progress());
  if (!results.ok()) return failed(results.status(), 1);
  std::fputs((arguments.on("json") ? text_json(*results) : text_table(*results)).c_str(), stdout);
  return 0;
}

}  // namespace

int run_eval(int argc, char** argv) {
  const absl::StatusOr<ToolArguments> arguments =
      parse_tool_arguments(std::vector<std::string>(argv + 1, argv + argc), eval_flags());
  if (arguments.ok() && arguments->help) {
    print_help();
    return 0;
  }
  const std::string what = argc > 1 ? argv[1] : "";
  if (what != "needle" && what != "perplexity" && what != "divergence") {
    return failed(absl::InvalidArgumentError("the first argument must be needle, perplexity or divergence"), 2);
  }
  if (!arguments.ok()) return failed(arguments.status(), 2);
  if (arguments->positional.size() > 1) {
    return failed(absl::InvalidArgumentError("unknown argument " + arguments->positional[1]), 2);
  }
  const std::vector<std::string> specs = split_list(arguments->text("kv-pool"));
  if (absl::Status status = check_pools(arguments->config, specs); !status.ok()) return failed(status, 2);
  start_log(arguments->config.log_level == "info" ? "warning" : arguments->config.log_level);
  const std::string& folder =
      arguments->config.tokenizer.empty() ? arguments->config.model : arguments->config.tokenizer;
  const absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return failed(tokenizer.status(), 1);
  if (what == "needle") return run_needle_command(*arguments, specs, **tokenizer);
  return run_text_command(*arguments, specs, **tokenizer, what == "divergence");
}

}  // namespace assay
