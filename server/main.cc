// The `assay` binary: one table of subcommands.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "server/calibrate/calibrate.h"
#include "server/commands.h"
#include "server/config/load.h"
#include "server/eval/eval.h"
#include "server/sweep/sweep.h"
#include "server/verify/verify.h"

namespace assay {
namespace {

int run_version(int, char**) {
  std::puts("assay " ASSAY_VERSION);
  return 0;
}

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"serve", "serve a model folder over HTTP", run_serve},
    {"sweep", "measure a server at several levels of load", run_sweep},
    {"eval", "compare pools on your model: needles, perplexity, divergence", run_eval},
    {"calibrate", "fit the KV cache to your own text", run_calibrate},
    {"verify", "check the KV cache's meter on this machine", run_verify_command},
    {"doctor", "check this machine and a model folder", run_doctor},
    {"version", "print the version", run_version},
};

const Command* find_command(const char* name) {
  for (const Command& command : kCommands) {
    if (std::strcmp(command.name, name) == 0) return &command;
  }
  return nullptr;
}

void print_usage(std::FILE* to) {
  std::fputs("usage: assay COMMAND ...\n\n", to);
  for (const Command& command : kCommands) std::fprintf(to, "  %-10s %s\n", command.name, command.summary);
  std::fputs("  help CMD   what CMD takes\n", to);
}

// `assay help serve` is `assay serve --help`; with --markdown it prints the table of docs/configuration.md.
int run_help(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stdout);
    return 0;
  }
  const Command* command = find_command(argv[1]);
  if (command == nullptr) {
    std::fprintf(stderr, "assay: unknown command %s\n", argv[1]);
    print_usage(stderr);
    return 2;
  }
  if (argc == 3 && std::strcmp(argv[2], "--markdown") == 0 && command->run == run_serve) {
    std::fputs(configuration_markdown().c_str(), stdout);
    return 0;
  }
  std::string name = command->name, flag = "--help";
  char* arguments[] = {name.data(), flag.data(), nullptr};
  return command->run(2, arguments);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    print_usage(stderr);
    return 2;
  }
  const std::string name = argv[1];
  if (name == "help" || name == "--help" || name == "-h") return run_help(argc - 1, argv + 1);
  if (name == "--version") return run_version(0, nullptr);
  const Command* command = find_command(argv[1]);
  if (command != nullptr) return command->run(argc - 1, argv + 1);
  std::fprintf(stderr, "assay: unknown command %s\n", argv[1]);
  print_usage(stderr);
  return 2;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) { return assay::run(argc, argv); }
