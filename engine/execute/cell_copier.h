// Copies the verdicts of each layer's metered cells to the host while a step runs, for measuring tools.
//
// Threads: those of DecoderModel::forward. Errors: error() after the step.
#pragma once

#include <utility>
#include <vector>

#include "engine/execute/executor.h"
#include "engine/model/decoder_model.h"

namespace assay {

class CellCopier final : public QkvObserver {
 public:
  // `view`: the meter of the step that begins.
  CellCopier(const kv::MeterView& view, Device& device, const CellObserver& observer);

  // The cells of a layer are complete when the next layer begins.
  void observe(int32_t layer, ConstTensor qkv) override;
  // Once after forward: the cells of the last layer.
  KernelError finish();

 private:
  void copy_layer();

  const kv::MeterView& view_;
  Device& device_;
  const CellObserver& observer_;
  std::vector<kv::MeteredRow> rows_;
  std::vector<kv::CellVerdict> verdicts_;
  int32_t layer_ = -1;  // whose cells are in the making
  KernelError error_ = KernelError::kOk;
};

}  // namespace assay
