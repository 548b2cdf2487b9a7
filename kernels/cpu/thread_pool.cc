#include "kernels/cpu/thread_pool.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace assay {
namespace {

// About 50 microseconds of spinning: longer than the gaps between the operations of a step, short against a scheduler
// tick.
constexpr int kSpins = 1000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Call call, const void* task) {
  if (count <= 0) return;
  if (count > UINT32_MAX) std::abort();
  if (count == 1 || workers_.empty()) {
    for (int64_t index = 0; index < count; ++index) call(task, index, 0);
    return;
  }
  count_ = static_cast<uint32_t>(count);
  call_ = call;
  task_ = task;
  unfinished_.store(count_, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  ticket_.store(uint64_t{epoch} << 32 | count_, std::memory_order_release);
  epoch_.store(epoch);
  if (sleepers_.load() > 0) epoch_.notify_all();
  while (run_one(epoch, 0)) {
  }
  for (int spin = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spin) {
    // A worker that lost its core holds a task: give it ours.
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

bool ThreadPool::run_one(uint32_t epoch, int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (static_cast<uint32_t>(ticket >> 32) != epoch || static_cast<uint32_t>(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  call_(task_, count_ - static_cast<uint32_t>(ticket), thread);
  unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

void ThreadPool::work(int thread) {
  for (uint32_t seen = 0;;) {
    seen = wait_for_epoch_after(seen);
    if (stopping_.load()) return;
    while (run_one(seen, thread)) {
    }
  }
}

uint32_t ThreadPool::wait_for_epoch_after(uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (epoch != seen) return epoch;
    pause();
  }
  sleepers_.fetch_add(1);
  epoch_.wait(seen);
  sleepers_.fetch_sub(1);
  return epoch_.load(std::memory_order_acquire);
}

}  // namespace assay
