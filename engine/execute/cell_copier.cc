#include "engine/execute/cell_copier.h"

namespace assay {

CellCopier::CellCopier(const kv::MeterView& view, Device& device, const CellObserver& observer)
    : view_(view), device_(device), observer_(observer), rows_(static_cast<size_t>(view.num_metered)) {
  verdicts_.resize(rows_.size() * static_cast<size_t>(view.num_heads));
  if (rows_.empty()) return;
  error_ = device_.copy_to_host(rows_.data(), view.rows, rows_.size() * sizeof(kv::MeteredRow));
}

void CellCopier::observe(int32_t layer, ConstTensor) {
  copy_layer();
  layer_ = layer;
}

KernelError CellCopier::finish() {
  copy_layer();
  layer_ = -1;
  return error_;
}

void CellCopier::copy_layer() {
  if (layer_ < 0 || rows_.empty() || error_ != KernelError::kOk) return;
  error_ = device_.copy_to_host(verdicts_.data(), view_.verdicts, verdicts_.size() * sizeof(kv::CellVerdict));
  if (error_ == KernelError::kOk) observer_(layer_, rows_, verdicts_);
}

}  // namespace assay
