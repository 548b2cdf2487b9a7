#include "kernels/cuda/step_graphs.h"

#include <algorithm>

namespace assay {
namespace {

constexpr size_t kMaxEntries = 256;

}  // namespace

StepGraphs::~StepGraphs() {
  for (auto& [key, entry] : entries_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
}

void StepGraphs::run(CudaContext& context, std::span<const uint64_t> key, const std::function<void()>& issue) {
  std::vector<uint64_t> name(key.begin(), key.end());
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    issue();
    make_room();
    entries_[std::move(name)].last_use = ++uses_;
    return;
  }
  Entry& entry = found->second;
  entry.last_use = ++uses_;
  if (entry.graph == nullptr && !entry.refused) entry.graph = capture(context, issue);
  entry.refused = entry.graph == nullptr;
  if (entry.refused) return issue();
  context.check(cudaGraphLaunch(entry.graph, context.stream));
  ++replays_;
}

// nullptr where something in it cannot be captured; nothing has run then.
cudaGraphExec_t StepGraphs::capture(CudaContext& context, const std::function<void()>& issue) {
  if (cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return nullptr;
  const cudaError_t before = context.first_error;
  issue();
  cudaGraph_t graph = nullptr;
  const bool ended = cudaStreamEndCapture(context.stream, &graph) == cudaSuccess && graph != nullptr;
  cudaGraphExec_t executable = nullptr;
  if (ended && cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = nullptr;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (executable == nullptr) {
    static_cast<void>(cudaGetLastError());
    context.first_error = before;
  }
  return executable;
}

void StepGraphs::make_room() {
  if (entries_.size() < kMaxEntries) return;
  const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  if (oldest->second.graph != nullptr) cudaGraphExecDestroy(oldest->second.graph);
  entries_.erase(oldest);
}

}  // namespace assay
