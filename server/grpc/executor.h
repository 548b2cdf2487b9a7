// Runs small tasks in the order in which they were posted.
//
// Owns: its threads. Threads: post from any thread; with one thread, tasks never overlap. Errors: none.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace assay::rpc {

class Executor {
 public:
  explicit Executor(int num_threads);
  ~Executor();  // runs what was posted, then joins

  // Never blocks for longer than a push takes.
  void post(std::function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace assay::rpc
