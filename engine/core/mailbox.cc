#include "engine/core/mailbox.h"

#include <utility>

#include "engine/core/inbox.h"

namespace assay {

void Mailbox::push(Event event) {
  const std::lock_guard lock(mutex_);
  const bool was_empty = events_.empty();
  num_open_ -= event.finish.has_value();
  events_.push_back(std::move(event));
  if (!was_empty) return;
  not_empty_.notify_all();
  if (ready_) ready_();
}

std::vector<Event> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::vector<Event> Mailbox::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  not_empty_.wait_for(lock, timeout, [this] { return !events_.empty(); });
  return std::exchange(events_, {});
}

void Mailbox::on_ready(std::function<void()> ready) {
  const std::lock_guard lock(mutex_);
  ready_ = std::move(ready);
  if (ready_ && !events_.empty()) ready_();
}

bool Mailbox::ended() const {
  const std::lock_guard lock(mutex_);
  return num_open_ == 0;
}

MailboxStream::~MailboxStream() {
  mailbox_->on_ready({});
  cancel();
}

void MailboxStream::stop(int32_t sequence) {
  if (!mailbox_->ended()) inbox_->post({stream_id_, StreamCommand::kStop, sequence});
}

void MailboxStream::cancel() {
  if (!mailbox_->ended()) inbox_->post({stream_id_, StreamCommand::kCancel, 0});
}

}  // namespace assay
