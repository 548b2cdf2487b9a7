// Both ends of a stream: the engine thread pushes events, one consumer takes them. Also what cancels a request when its
// consumer goes away.
//
// Owns: Mailbox: events that wait, the ready callback. MailboxStream: the client's share of a mailbox and of the inbox.
// Threads: every method of Mailbox from any thread. The callback runs under the mailbox's lock, which is what makes
// on_ready's promise true; so it must not call back into the stream.
// Bound: see engine/api/stream.h. Errors: none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/api/stream.h"

namespace assay {

class Inbox;

class Mailbox {
 public:
  explicit Mailbox(int32_t num_sequences) : num_open_(num_sequences) {}

  void push(Event event);
  std::vector<Event> take();
  std::vector<Event> wait(std::chrono::milliseconds timeout);
  void on_ready(std::function<void()> ready);
  bool ended() const;  // every sequence has had its terminal event

 private:
  mutable std::mutex mutex_;
  std::condition_variable not_empty_;
  std::vector<Event> events_;
  std::function<void()> ready_;
  int32_t num_open_;  // sequences without a terminal event
};

class MailboxStream : public Stream {
 public:
  MailboxStream(int64_t stream_id, std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Inbox> inbox)
      : stream_id_(stream_id), mailbox_(std::move(mailbox)), inbox_(std::move(inbox)) {}
  ~MailboxStream() override;

  std::vector<Event> take() override { return mailbox_->take(); }
  std::vector<Event> wait(std::chrono::milliseconds timeout) override { return mailbox_->wait(timeout); }
  void on_ready(std::function<void()> ready) override { mailbox_->on_ready(std::move(ready)); }
  void stop(int32_t sequence) override;
  void cancel() override;

 private:
  const int64_t stream_id_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<Inbox> inbox_;  // outlives the engine, and is deaf then
};

}  // namespace assay
