#include "server/calibrate/calibrate.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "server/eval/progress.h"
#include "server/eval/tool_arguments.h"
#include "server/ops/log.h"
#include "server/text/tokenizer.h"

namespace assay {
namespace {

const std::vector<ToolFlag>& calibrate_flags() {
  static const std::vector<ToolFlag> flags = {
      {"text", "FILE", "text of your own, like the traffic you expect; a few thousand tokens are enough"},
      {"suggest", "", "meter the text on several pools: coverage against m, raw scores, tau against page-ins"},
      {"kv-pool", "P[,P...]", "pools of --suggest; settings behind @",
       "certified,witcert@kv_outlier_pairs=0@kv_radius=dither,witcert@kv_outlier_pairs=4@kv_radius=dither,"
       "witcert@kv_outlier_pairs=16@kv_radius=dither"},
      {"context", "N", "tokens of a piece of the text", "2048"},
      {"tokens", "N", "tokens of the text that are used at most", "8192"},
      {"stride", "N", "every so many positions are metered", "32"},
      {"json", "", "the result as JSON"},
  };
  return flags;
}

void print_help() {
  std::fputs(
      "assay calibrate --model DIR --text FILE [--suggest] ...: one pass over the text; its result lies beside the "
      "model\n"
      "(assay-calibration.bin) and every later start with this model uses it. Bounds hold whatever the text; a text "
      "like\n"
      "your traffic makes them tighter.\n\n",
      stdout);
  std::fputs(tool_flags_help(calibrate_flags()).c_str(), stdout);
  std::fputs("\nAnd the flags of `assay serve` for model and cache (--threads, --kv-delta, --block-size, ...).\n",
             stdout);
}

int failed(const absl::Status& status, int code) {
  std::fprintf(stderr, "assay calibrate: %s\n", std::string(status.message()).c_str());
  return code;
}

struct Sizes {
  int64_t context, tokens, stride;
};

absl::StatusOr<Sizes> sizes_of(const ToolArguments& arguments) {
  const auto context = arguments.number("context", 32, 1 << 24), tokens = arguments.number("tokens", 64, INT32_MAX);
  const auto stride = arguments.number("stride", 1, 1 << 20);
  for (const absl::Status& status : {context.status(), tokens.status(), stride.status()}) {
    if (!status.ok()) return status;
  }
  return Sizes{*context, *tokens, *stride};
}

// A pool that this model or build does not have is a line of the result, not an error.
absl::StatusOr<std::vector<Suggestion>> suggest(const ToolArguments& arguments, const Sizes& sizes,
                                                const std::vector<int32_t>& tokens) {
  const Progress progress = make_progress();
  std::vector<Suggestion> suggestions;
  for (const std::string& spec : split_list(arguments.text("kv-pool"))) {
    const absl::StatusOr<ServeConfig> config = with_pool(arguments.config, spec);
    if (!config.ok()) return config.status();
    EngineConfig wanted = engine_config(*config);
    wanted.calibration_files = EngineConfig::CalibrationFiles::kUse;
    wanted.kv_gate = "observe";
    ScoreOptions options;
    options.context = sizes.context;
    options.stride = static_cast<int32_t>(sizes.stride);
    options.progress = [&](int64_t done, int64_t total) { progress(spec, done, total); };
    absl::StatusOr<MeterScores> scores = score_meter(wanted, tokens, options);
    Suggestion suggestion{spec, scores.ok() ? "" : std::string(scores.status().message()), {}};
    if (scores.ok()) suggestion.scores = *std::move(scores);
    suggestions.push_back(std::move(suggestion));
  }
  return suggestions;
}

}  // namespace

int run_calibrate(int argc, char** argv) {
  const absl::StatusOr<ToolArguments> arguments =
      parse_tool_arguments(std::vector<std::string>(argv + 1, argv + argc), calibrate_flags());
  if (!arguments.ok()) return failed(arguments.status(), 2);
  if (arguments->help) {
    print_help();
    return 0;
  }
  if (!arguments->positional.empty()) {
    return failed(absl::InvalidArgumentError("unknown argument " + arguments->positional.front()), 2);
  }
  const absl::StatusOr<Sizes> sizes = sizes_of(*arguments);
  if (!sizes.ok()) return failed(sizes.status(), 2);
  const absl::Status pools = check_pools(arguments->config, split_list(arguments->text("kv-pool")));
  if (!pools.ok()) return failed(pools, 2);
  const absl::StatusOr<std::string> text = read_text_file("text", arguments->text("text"));
  if (!text.ok()) return failed(text.status(), 2);
  start_log(arguments->config.log_level == "info" ? "warning" : arguments->config.log_level);
  const std::string& folder =
      arguments->config.tokenizer.empty() ? arguments->config.model : arguments->config.tokenizer;
  const absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return failed(tokenizer.status(), 1);
  EngineConfig wanted = engine_config(arguments->config);
  std::vector<int32_t> tokens = (*tokenizer)->encode(*text, false);
  if (static_cast<int64_t>(tokens.size()) > sizes->tokens) tokens.resize(static_cast<size_t>(sizes->tokens));
  wanted.calibration_tokens = tokens;
  wanted.max_model_len = static_cast<int32_t>(sizes->context);
  const absl::StatusOr<CalibrationSummary> summary = calibrate_model(wanted);
  if (!summary.ok()) return failed(summary.status(), 1);
  std::vector<Suggestion> suggestions;
  if (arguments->on("suggest")) {
    absl::StatusOr<std::vector<Suggestion>> made = suggest(*arguments, *sizes, tokens);
    if (!made.ok()) return failed(made.status(), 1);
    suggestions = *std::move(made);
  }
  std::fputs((arguments->on("json") ? calibration_json_report(*summary, suggestions)
                                    : calibration_text_report(*summary, suggestions))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace assay
