#include "engine/core/inbox.h"

#include <string>
#include <utility>

#include "engine/core/status_copy.h"

namespace assay {

absl::Status Inbox::offer(Submission submission) {
  const std::lock_guard lock(mutex_);
  if (!refusal_.ok()) return status_copy(refusal_);
  const int64_t num_slots = submission.request->num_sequences;
  if (num_queued_ + num_slots > max_queued_) {
    ++num_rejected_;
    return absl::ResourceExhaustedError("the queue is full: " + std::to_string(num_queued_) + " of " +
                                        std::to_string(max_queued_) + " places are taken and this request needs " +
                                        std::to_string(num_slots) + "; try again later");
  }
  num_queued_ += num_slots;
  contents_.submissions.push_back(std::move(submission));
  not_empty_.notify_one();
  return absl::OkStatus();
}

void Inbox::post(StreamCommand command) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  contents_.commands.push_back(command);
  not_empty_.notify_one();
}

void Inbox::free_slots(int64_t num_slots) {
  const std::lock_guard lock(mutex_);
  num_queued_ -= num_slots;
}

void Inbox::refuse(absl::Status why) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(why);
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  not_empty_.notify_one();
}

Inbox::Contents Inbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(contents_, {});
}

bool Inbox::wait() {
  std::unique_lock lock(mutex_);
  not_empty_.wait(lock, [this] { return closed_ || !contents_.submissions.empty() || !contents_.commands.empty(); });
  return !closed_;
}

bool Inbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

int64_t Inbox::num_queued() const {
  const std::lock_guard lock(mutex_);
  return num_queued_;
}

int64_t Inbox::num_rejected() const {
  const std::lock_guard lock(mutex_);
  return num_rejected_;
}

}  // namespace assay
