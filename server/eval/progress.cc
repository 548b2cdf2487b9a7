#include "server/eval/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace assay {

Progress make_progress() {
  using Clock = std::chrono::steady_clock;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto pause = terminal ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10'000);
  return [terminal, pause, last = Clock::now()](const std::string& what, int64_t done, int64_t total) mutable {
    const bool complete = done == total;
    if (!complete && Clock::now() - last < pause) return;
    if (complete && !terminal && Clock::now() - last < pause) return;
    last = Clock::now();
    std::fprintf(stderr, terminal ? "\r%s: %lld of %lld%s" : "%s: %lld of %lld%s", what.c_str(),
                 static_cast<long long>(done), static_cast<long long>(total), terminal && !complete ? "" : "\n");
    std::fflush(stderr);
  };
}

}  // namespace assay
