// Everything that other threads want of the engine thread: new requests, stops, cancellations, shutdown. The only
// state that both sides of the engine's door write.
//
// Owns: submissions and commands that wait for the engine thread; the count of queue slots. A slot is one sequence
// that has been submitted and not yet started (or ended before that).
// Threads: every method from any thread; take and wait by the engine thread alone.
// Errors: offer says Unavailable (refusing) or ResourceExhausted (queue full).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/api/request.h"
#include "engine/core/mailbox.h"

namespace assay {

struct Submission {
  int64_t stream_id = 0;  // unique in the engine's life
  std::shared_ptr<const Request> request;
  std::shared_ptr<Mailbox> mailbox;
  uint64_t seed = 0;  // of the request; see engine/core/seeds.h
  std::chrono::steady_clock::time_point submitted;
};

struct StreamCommand {
  int64_t stream_id = 0;  // of kStop and kCancel
  enum Kind { kStop, kCancel, kAbortAll } kind = kCancel;
  int32_t sequence = 0;  // of kStop
};

class Inbox {
 public:
  explicit Inbox(int64_t max_queued) : max_queued_(max_queued) {}

  absl::Status offer(Submission submission);  // takes num_sequences slots
  void post(StreamCommand command);           // dropped once closed
  void free_slots(int64_t num_slots);

  void refuse(absl::Status why);  // what offer answers from now on; what was taken in before stays
  void close();                   // ends wait for good; refuse first

  struct Contents {
    std::vector<Submission> submissions;  // in order of arrival
    std::vector<StreamCommand> commands;  // of streams already submitted
  };
  Contents take();  // never blocks

  // Sleeps until there is something to take or the inbox is closed. True: go on; false: closed.
  bool wait();
  bool closed() const;

  int64_t num_queued() const;    // slots taken
  int64_t num_rejected() const;  // requests refused because the queue was full

 private:
  const int64_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  Contents contents_;
  int64_t num_queued_ = 0;
  int64_t num_rejected_ = 0;
  absl::Status refusal_;
  bool closed_ = false;
};

}  // namespace assay
