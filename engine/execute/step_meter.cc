#include "engine/execute/step_meter.h"

#include <algorithm>
#include <cstring>

namespace assay {
namespace {

absl::Status status_of(KernelError error) {
  return error == KernelError::kOk ? absl::OkStatus() : absl::InternalError(kernel_error_name(error));
}

// Places arrays one behind the other, aligned.
class Places {
 public:
  template <class T>
  size_t add(size_t count) {
    const size_t at = bytes_;
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

bool is_metered(const SequenceSlice& slice, int32_t position, kv::Phase phase) {
  if (phase == kv::Phase::kDecode) return true;
  const int32_t stride = slice.meter.metered_stride;
  if (slice.first_position == 0 || stride <= 0) return false;
  return position % stride == 0 || position == slice.first_position + slice.num_tokens - 1;
}

}  // namespace

std::vector<kv::MeteredRow> metered_rows(const StepPlan& plan) {
  std::vector<kv::MeteredRow> rows;
  int32_t row = 0;
  for (size_t s = 0; s < plan.slices.size(); ++s) {
    const SequenceSlice& slice = plan.slices[s];
    for (int32_t i = 0; i < slice.num_tokens; ++i, ++row) {
      const int32_t position = slice.first_position + i;
      const bool decode = i + 1 == slice.num_tokens && has_decode_row(slice);
      const kv::Phase phase = decode ? kv::Phase::kDecode : kv::Phase::kPrefill;
      if (is_metered(slice, position, phase)) rows.push_back({row, static_cast<int32_t>(s), position, phase});
    }
  }
  return rows;
}

absl::StatusOr<StepMeter> StepMeter::make(Device& device, const MeterRules& rules, int32_t num_layers,
                                          int32_t num_heads) {
  StepMeter meter;
  meter.num_layers_ = num_layers;
  meter.view_.num_heads = num_heads;
  meter.view_.bound = rules.bound;
  meter.view_.radius = rules.radius;
  const std::vector<kv::HeadMeter> zero(static_cast<size_t>(num_layers) * static_cast<size_t>(num_heads));
  const size_t bytes = zero.size() * sizeof(kv::HeadMeter);
  meter.heads_ = Buffer::make(device, bytes);
  if (meter.heads_.data() == nullptr) return absl::ResourceExhaustedError("no device memory for the meter");
  if (absl::Status status = status_of(device.copy_to_device(meter.heads_.data(), zero.data(), bytes)); !status.ok()) {
    return status;
  }
  meter.view_.heads = static_cast<kv::HeadMeter*>(meter.heads_.data());
  return meter;
}

absl::Status StepMeter::stage(const StepPlan& plan, Device& device) {
  if (num_layers_ == 0) return absl::OkStatus();
  const std::vector<kv::MeteredRow> rows = metered_rows(plan);
  const size_t sequences = plan.slices.size(), cells = rows.size() * static_cast<size_t>(view_.num_heads);
  Places places;
  const size_t cell_of_row = places.add<int32_t>(static_cast<size_t>(plan.num_tokens));
  const size_t metered = places.add<kv::MeteredRow>(rows.size());
  const size_t thresholds = places.add<kv::MeterThresholds>(sequences);
  const size_t tallies = places.add<kv::SequenceMeter>(sequences);
  const size_t staged_bytes = places.bytes();
  const size_t cells_at = places.add<kv::MeterCell>(cells), verdicts = places.add<kv::CellVerdict>(cells);
  if (step_.bytes() < places.bytes()) step_ = Buffer::make(device, places.bytes() + places.bytes() / 2);
  if (step_.data() == nullptr) return absl::ResourceExhaustedError("no device memory to meter a step");

  std::vector<std::byte> host(staged_bytes);
  int32_t* index = reinterpret_cast<int32_t*>(host.data() + cell_of_row);
  std::fill_n(index, plan.num_tokens, -1);
  for (size_t i = 0; i < rows.size(); ++i) index[rows[i].row] = static_cast<int32_t>(i);
  std::copy(rows.begin(), rows.end(), reinterpret_cast<kv::MeteredRow*>(host.data() + metered));
  for (size_t s = 0; s < sequences; ++s) {
    reinterpret_cast<kv::MeterThresholds*>(host.data() + thresholds)[s] = plan.slices[s].meter;
    reinterpret_cast<kv::SequenceMeter*>(host.data() + tallies)[s] = kv::SequenceMeter();
  }
  std::byte* base = static_cast<std::byte*>(step_.data());
  view_.num_metered = static_cast<int32_t>(rows.size());
  view_.cell_of_row = reinterpret_cast<const int32_t*>(base + cell_of_row);
  view_.rows = reinterpret_cast<const kv::MeteredRow*>(base + metered);
  view_.thresholds = reinterpret_cast<const kv::MeterThresholds*>(base + thresholds);
  view_.sequences = reinterpret_cast<kv::SequenceMeter*>(base + tallies);
  view_.cells = reinterpret_cast<kv::MeterCell*>(base + cells_at);
  view_.verdicts = reinterpret_cast<kv::CellVerdict*>(base + verdicts);
  return status_of(device.copy_to_device(base, host.data(), staged_bytes));
}

absl::Status StepMeter::collect(Device& device, StepResult& result) {
  if (num_layers_ == 0) return absl::OkStatus();
  std::vector<kv::SequenceMeter> meters(result.slices.size());
  const size_t bytes = meters.size() * sizeof(kv::SequenceMeter);
  if (absl::Status status = status_of(device.copy_to_host(meters.data(), view_.sequences, bytes)); !status.ok()) {
    return status;
  }
  for (size_t s = 0; s < meters.size(); ++s) result.slices[s].meter = meters[s];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<kv::HeadMeter>> StepMeter::read_heads(Device& device) {
  std::vector<kv::HeadMeter> heads(static_cast<size_t>(num_layers_) * static_cast<size_t>(view_.num_heads));
  if (heads.empty()) return heads;
  const size_t bytes = heads.size() * sizeof(kv::HeadMeter);
  if (absl::Status status = status_of(device.copy_to_host(heads.data(), heads_.data(), bytes)); !status.ok()) {
    return status;
  }
  std::vector<kv::HeadMeter> restarted = heads;
  for (kv::HeadMeter& head : restarted) {
    head.recent_worst = 0;
    for (int phase = 0; phase < kv::kNumPhases; ++phase) {
      head.tv_sum[phase] = head.value_sum[phase] = 0;
      std::fill(std::begin(head.tv_buckets[phase]), std::end(head.tv_buckets[phase]), 0u);
      std::fill(std::begin(head.value_buckets[phase]), std::end(head.value_buckets[phase]), 0u);
    }
  }
  if (absl::Status status = status_of(device.copy_to_device(heads_.data(), restarted.data(), bytes)); !status.ok()) {
    return status;
  }
  return heads;
}

}  // namespace assay
