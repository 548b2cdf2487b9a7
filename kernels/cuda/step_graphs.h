// Work that comes back step after step, captured once and replayed as one launch.
//
// Owns: the captured graphs, a bounded number of them; the least recently used goes first. Threads: one at a time.
// Errors: what cannot be captured runs as issued; a failed launch is kept in the context.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_context.h"

namespace assay {

class StepGraphs {
 public:
  StepGraphs() = default;
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  // Contract: Ops::run_repeatable. The first call with a key runs as issued (it may allocate scratch memory and choose
  // plans), the second is captured, later ones replay.
  void run(CudaContext& context, std::span<const uint64_t> key, const std::function<void()>& issue);

  int64_t replays() const { return replays_; }

 private:
  struct Entry {
    cudaGraphExec_t graph = nullptr;
    bool refused = false;  // it cannot be captured
    int64_t last_use = 0;
  };

  static cudaGraphExec_t capture(CudaContext& context, const std::function<void()>& issue);
  void make_room();

  std::map<std::vector<uint64_t>, Entry> entries_;
  int64_t uses_ = 0, replays_ = 0;
};

}  // namespace assay
