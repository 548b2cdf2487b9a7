// A few threads that run one parallel loop at a time.
//
// The caller works too, so a loop ends even when no worker gets a core: a worker that is late finds nothing left.
// Workers spin for some microseconds between loops (the operations of a step follow each other closely), then sleep.
// Threads: parallel_for from one thread at a time, never from inside a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace assay {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // the caller counts as one
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(index, thread) once for every index in [0, count), in any order, thread in [0, num_threads()).
  template <class Task>
  void parallel_for(int64_t count, const Task& task) {
    run(
        count, [](const void* t, int64_t index, int thread) { (*static_cast<const Task*>(t))(index, thread); }, &task);
  }

 private:
  using Call = void (*)(const void* task, int64_t index, int thread);
  void run(int64_t count, Call call, const void* task);
  bool run_one(uint32_t epoch, int thread);
  void work(int thread);
  uint32_t wait_for_epoch_after(uint32_t seen);

  // The loop that runs now. `ticket_` = epoch in the high half, tasks not yet claimed in the low half: a claim is one
  // compare-and-swap that fails when the epoch has passed, so a late worker never touches a loop that is over.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> unfinished_{0};
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  uint32_t count_ = 0;
  Call call_ = nullptr;
  const void* task_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace assay
