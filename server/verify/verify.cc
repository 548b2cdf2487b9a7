#include "server/verify/verify.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace assay {
namespace {

constexpr int64_t kMostTrials = 1'000'000'000;
constexpr const char* kHelp =
    "assay verify [--trials N] [--seed N] [--json]: checks the bounds of the KV cache's meter on this machine.\n\n"
    "  --trials N   adversarial trials per bound; codecs and transforms take a share [default: 100000]\n"
    "  --seed N     of the trials; the same seed repeats them [default: 1]\n"
    "  --json       the result as JSON\n\n"
    "Exit status: 0 without a violation, 1 with one. What the statements mean: docs/certificate.md.\n";

struct Arguments {
  VerifyOptions options;
  bool json = false, help = false;
};

std::optional<int64_t> number(std::string_view text, int64_t least) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > kMostTrials) return std::nullopt;
  return value;
}

// Nothing: `problem` says why.
std::optional<Arguments> parse(int argc, char** argv, std::string& problem) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--json" || flag == "--help" || flag == "-h") {
      (flag == "--json" ? arguments.json : arguments.help) = true;
      continue;
    }
    if (flag != "--trials" && flag != "--seed") {
      problem = fmt::format("unknown argument {}", flag);
      return std::nullopt;
    }
    const int64_t least = flag == "--trials" ? 1 : 0;
    const std::optional<int64_t> value = i + 1 < argc ? number(argv[i + 1], least) : std::nullopt;
    if (!value) {
      problem = fmt::format("{} needs a whole number from {} to {}", flag, least, kMostTrials);
      return std::nullopt;
    }
    if (flag == "--trials") {
      arguments.options.trials = *value;
    } else {
      arguments.options.seed = static_cast<uint64_t>(*value);
    }
    ++i;
  }
  return arguments;
}

}  // namespace

std::string verify_text(const VerifyReport& report) {
  std::string text = fmt::format("{:<26} {:>12} {:>11} {:>9}  {}\n", "check", "checks", "violations", "tightest", "statement");
  int64_t checks = 0, violations = 0;
  for (const VerifyCheck& check : report.checks) {
    text += fmt::format("{:<26} {:>12} {:>11} {:>9.4f}  {}\n", check.name, check.checks, check.violations, check.tightest,
                        check.statement);
    checks += check.checks;
    violations += check.violations;
  }
  return text + fmt::format("{}: {} violations in {} checks\n", report.ok() ? "good" : "BAD", violations, checks);
}

std::string verify_json(const VerifyOptions& options, const VerifyReport& report) {
  nlohmann::ordered_json json = {{"ok", report.ok()}, {"trials", options.trials}, {"seed", options.seed}};
  json["checks"] = nlohmann::ordered_json::array();
  for (const VerifyCheck& check : report.checks) {
    json["checks"].push_back({{"name", check.name},
                              {"statement", check.statement},
                              {"checks", check.checks},
                              {"violations", check.violations},
                              {"tightest", check.tightest}});
  }
  return json.dump(2) + "\n";
}

int run_verify_command(int argc, char** argv) {
  std::string problem;
  const std::optional<Arguments> arguments = parse(argc, argv, problem);
  if (!arguments) {
    std::fprintf(stderr, "assay verify: %s (see `assay help verify`)\n", problem.c_str());
    return 2;
  }
  if (arguments->help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const VerifyReport report = run_verify(arguments->options);
  std::fputs((arguments->json ? verify_json(arguments->options, report) : verify_text(report)).c_str(), stdout);
  return report.ok() ? 0 : 1;
}

}  // namespace assay
