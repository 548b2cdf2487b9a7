// SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once.
//
// Threads: one watcher thread of its own. Construct before any other thread starts, so that all of them leave the signals alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace assay {

class SignalWatch {
 public:
  SignalWatch();

  // From now on the first signal is orderly; until then it ends the process at once too.
  void accept_orderly_end();

  // True once an end was asked for; waits at most `time` for it.
  bool wait(std::chrono::milliseconds time);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the watcher, which lives as long as the process
};

}  // namespace assay
