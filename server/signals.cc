#include "server/signals.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

namespace assay {

struct SignalWatch::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool orderly = false;
  bool asked = false;
};

SignalWatch::SignalWatch() : state_(std::make_shared<State>()) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([state = state_, set] {
    while (true) {
      int number = 0;
      if (sigwait(&set, &number) != 0) continue;
      const std::lock_guard lock(state->mutex);
      if (!state->orderly || state->asked) _exit(128 + number);
      state->asked = true;
      state->changed.notify_all();
    }
  }).detach();
}

void SignalWatch::accept_orderly_end() {
  const std::lock_guard lock(state_->mutex);
  state_->orderly = true;
}

bool SignalWatch::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->asked; });
}

}  // namespace assay
