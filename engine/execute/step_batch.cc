#include "engine/execute/step_batch.h"

#include <algorithm>
#include <string>

namespace assay {
namespace {

absl::Status broken(const SequenceSlice& slice, const std::string& what) {
  return absl::InternalError("step plan, sequence " + std::to_string(slice.sequence_id) + ": " + what);
}

// To the next of 2^n x {4, 5, 6, 7} / 4, at least 64: steps of a growing context keep their shape for a while, and a
// device may repeat them.
int32_t rounded_up(int32_t count) {
  int32_t step = 16;
  while (count > 8 * step) step *= 2;
  return std::max(64, (count + step - 1) / step * step);
}

absl::Status check_slice(const SequenceSlice& slice, const BatchLimits& limits) {
  const int64_t end = int64_t{slice.first_position} + slice.num_tokens;
  if (slice.num_tokens < 1 || slice.first_position < 0) return broken(slice, "an empty slice");
  if (end > slice.num_known_tokens) return broken(slice, "more positions than tokens");
  if (end > int64_t{slice.num_pages} * limits.page_tokens) return broken(slice, "positions without pages");
  if (slice.sample && end != slice.num_known_tokens) return broken(slice, "samples before the end of its tokens");
  if (slice.sampling == nullptr && (slice.sample || slice.prompt_logprobs)) return broken(slice, "no sampling rules");
  for (int32_t i = slice.first_position; i < end; ++i) {
    if (slice.tokens[i] < 0 || slice.tokens[i] >= limits.vocab_size)
      return broken(slice, "a token outside the vocabulary");
  }
  for (int32_t i = 0; i < slice.num_pages; ++i) {
    if (slice.pages[i] < 0 || slice.pages[i] >= limits.num_pages) return broken(slice, "a page outside the pool");
  }
  return absl::OkStatus();
}

absl::Status check_plan(const StepPlan& plan, const BatchLimits& limits) {
  int64_t tokens = 0;
  for (const SequenceSlice& slice : plan.slices) {
    if (absl::Status status = check_slice(slice, limits); !status.ok()) return status;
    tokens += slice.num_tokens;
  }
  if (tokens != plan.num_tokens || tokens < 1)
    return absl::InternalError("step plan: num_tokens is not the sum of slices");
  if (tokens > limits.max_tokens) return absl::InternalError("step plan: more tokens than max_num_batched_tokens");
  return absl::OkStatus();
}

}  // namespace

absl::Status StepBatch::stage(const StepPlan& plan, const BatchLimits& limits, const std::vector<int32_t>& head_rows,
                              Device& device) {
  if (absl::Status status = check_plan(plan, limits); !status.ok()) return status;
  fill(plan, head_rows);
  const size_t bytes = host_.size() * sizeof(int32_t);
  if (device_memory_.bytes() < bytes) device_memory_ = Buffer::make(device, bytes + bytes / 2);
  if (device_memory_.data() == nullptr) return absl::ResourceExhaustedError("no device memory to stage a step");
  const KernelError copied = device.copy_to_device(device_memory_.data(), host_.data(), bytes);
  if (copied != KernelError::kOk) return absl::InternalError(kernel_error_name(copied));
  point_view_at(static_cast<const int32_t*>(device_memory_.data()), plan);
  return absl::OkStatus();
}

// Order: token ids, positions, sequences, first rows, page table, head rows.
void StepBatch::fill(const StepPlan& plan, const std::vector<int32_t>& head_rows) {
  const size_t tokens = static_cast<size_t>(plan.num_tokens), sequences = plan.slices.size();
  stride_ = 0;
  for (const SequenceSlice& slice : plan.slices) stride_ = std::max(stride_, slice.num_pages);
  stride_ = rounded_up(stride_);
  host_.assign(3 * tokens + sequences + 1 + sequences * static_cast<size_t>(stride_), 0);
  int32_t* ids = host_.data();
  int32_t *positions = ids + tokens, *owners = positions + tokens, *first_row = owners + tokens;
  int32_t* table = first_row + sequences + 1;
  int32_t row = 0;
  for (size_t s = 0; s < sequences; ++s) {
    const SequenceSlice& slice = plan.slices[s];
    first_row[s] = row;
    for (int32_t i = 0; i < slice.num_tokens; ++i, ++row) {
      positions[row] = slice.first_position + i;
      ids[row] = slice.tokens[positions[row]];
      owners[row] = static_cast<int32_t>(s);
    }
    std::copy_n(slice.pages, slice.num_pages, table + s * static_cast<size_t>(stride_));
  }
  first_row[sequences] = row;
  host_.insert(host_.end(), head_rows.begin(), head_rows.end());
}

void StepBatch::point_view_at(const int32_t* base, const StepPlan& plan) {
  const int64_t tokens = plan.num_tokens, sequences = static_cast<int64_t>(plan.slices.size());
  view_.num_tokens = plan.num_tokens;
  view_.num_sequences = static_cast<int32_t>(sequences);
  view_.token_ids = base;
  view_.positions = base + tokens;
  view_.sequences = base + 2 * tokens;
  view_.first_row = base + 3 * tokens;
  view_.page_table = view_.first_row + sequences + 1;
  view_.page_table_stride = stride_;
  view_.max_context = view_.num_decodes = view_.max_slice_rows = 0;
  for (const SequenceSlice& slice : plan.slices) {
    view_.max_context = std::max(view_.max_context, slice.first_position + slice.num_tokens);
    view_.max_slice_rows = std::max(view_.max_slice_rows, slice.num_tokens);
  }
  view_.max_context = rounded_up(view_.max_context);
  while (view_.num_decodes < view_.num_sequences && plan.slices[static_cast<size_t>(view_.num_decodes)].num_tokens == 1) {
    ++view_.num_decodes;
  }
  head_rows_ = view_.page_table + sequences * stride_;
}

}  // namespace assay
