// `assay serve` over an engine that fails when told to: once the file named by FAIL_WHEN_THERE exists, the next step fails as a
// broken device would make it. Everything but the executor is the server's own.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "engine/core/engine_impl.h"
#include "server/commands.h"
#include "tests/sim/fake_executor.h"

namespace assay {

absl::StatusOr<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config) {
  test::FakeModelOptions model;
  model.vocab_size = 320;  // of tests/e2e/scripted_model.py's random model
  model.eos_token_ids = {258};
  model.max_model_len = 4096;
  model.block_size = 16;
  model.num_pages = 2048;
  model.before_step = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const char* file = std::getenv("FAIL_WHEN_THERE");
    const bool fails = file != nullptr && std::filesystem::exists(file);
    return fails ? absl::InternalError("the device is gone") : absl::OkStatus();
  };
  EngineConfig resolved = config;
  resolved.max_num_batched_tokens = 512;
  return EngineImpl::create(std::move(resolved), std::make_unique<test::FakeExecutor>(std::move(model)));
}

}  // namespace assay

int main(int argc, char** argv) { return assay::run_serve(argc - 1, argv + 1); }
