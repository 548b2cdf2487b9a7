#include "server/grpc/executor.h"

namespace assay::rpc {

Executor::Executor(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Executor::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  posted_.notify_one();
}

void Executor::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace assay::rpc
