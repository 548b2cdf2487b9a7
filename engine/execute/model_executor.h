// The executor of one device and one rank: stage, forward, logits where they are needed, sample, score.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/execute/backend.h"
#include "engine/execute/executor.h"
#include "engine/execute/filling_pages.h"
#include "engine/execute/head_jobs.h"
#include "engine/execute/kv_pool.h"
#include "engine/execute/resolve_config.h"
#include "engine/execute/step_gate.h"
#include "engine/execute/step_batch.h"
#include "engine/execute/step_meter.h"
#include "engine/model/decoder_model.h"
#include "engine/model/generation_defaults.h"
#include "engine/weights/weight_source.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace assay {

class ModelExecutor final : public Executor {
 public:
  static absl::StatusOr<std::unique_ptr<Executor>> create(EngineConfig& config);

  absl::StatusOr<StepResult> execute(const StepPlan& plan) override;
  const ModelInfo& model() const override { return model_info_; }
  const PoolInfo& pool() const override { return pool_info_; }
  KeptRows kept_rows(int64_t sequence_id) override {
    const BackingStore::Kept kept = gate_.kept(sequence_id);
    return {kept.first, kept.end};
  }
  GateStats read_gate() const override { return gate_.stats(); }
  std::vector<kv::HeadMeter> read_head_meters() override;
  void observe_cells(CellObserver observer) override { cell_observer_ = std::move(observer); }

 private:
  absl::Status load_weights(const EngineConfig& config);
  absl::Status start_device(const EngineConfig& config);
  absl::Status build(EngineConfig& config, const CachePlan& cache);
  void describe(const EngineConfig& config, const CachePlan& cache, const GenerationDefaults& defaults);
  void sample_rows(const StepPlan& plan, const std::vector<HeadJob>& jobs, size_t begin, size_t end,
                   StepResult& result);
  void score_rows(const StepPlan& plan, const std::vector<HeadJob>& jobs, size_t begin, size_t end,
                  size_t first_head_row, StepResult& result);

  ModelConfig config_;
  std::unique_ptr<WeightSource> source_;  // gone once the weights are on a device of their own
  DecoderWeights weights_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Buffer device_weights_;
  KvPool pool_;
  FillingPages filling_;
  std::unique_ptr<DecoderModel> decoder_;
  StepBatch batch_;
  StepMeter meter_;
  StepGate gate_;
  CellObserver cell_observer_;
  ModelInfo model_info_;
  PoolInfo pool_info_;
};

}  // namespace assay
