// The client's end of one submitted request: a mailbox of events, and the only way to cancel it.
//
// Owns: its place in the engine. Destroying a stream whose sequences have not all ended cancels them; their pages are free
// within a step.
// Threads: one consumer thread at a time calls these; the engine thread fills the mailbox. The ready callback runs on the
// engine thread and must only hand over (post to an executor, notify); it must not call into the stream or the engine.
// Bound: a mailbox never holds more than num_sequences x (max_tokens + 1) + 1 events, since each token is one event and the
// number of tokens is bounded when the request is admitted; a slow reader therefore costs no other request anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/api/events.h"

namespace assay {

class Stream {
 public:
  virtual ~Stream() = default;

  // Moves every waiting event out, in order. Empty: nothing has happened since. Never blocks.
  virtual std::vector<Event> take() = 0;

  // Blocks until at least one event waits or `timeout` passes, then as take(). For tests and simple callers.
  virtual std::vector<Event> wait(std::chrono::milliseconds timeout) = 0;

  // `ready` is called whenever the mailbox goes from empty to not empty, and at once if it is not empty now. Replaces the
  // previous callback; empty function = none. When this returns, the previous callback is not running and will not run.
  virtual void on_ready(std::function<void()> ready) = 0;

  // Ends one sequence as finished (FinishReason::kStop): the text layer saw a stop string. A token already on its way may
  // still arrive before the terminal event.
  virtual void stop(int32_t sequence) = 0;

  // Ends all sequences with FinishReason::kAbort.
  virtual void cancel() = 0;
};

}  // namespace assay
