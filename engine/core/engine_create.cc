// The one place where deciding meets computing. In a file of its own, so that only who calls it needs a real executor.
#include <utility>

#include "engine/core/engine_impl.h"

namespace assay {

absl::StatusOr<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config) {
  EngineConfig resolved = config;
  absl::StatusOr<std::unique_ptr<Executor>> executor = make_executor(resolved);
  if (!executor.ok()) return executor.status();
  return EngineImpl::create(std::move(resolved), *std::move(executor));
}

}  // namespace assay
