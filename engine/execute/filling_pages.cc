#include "engine/execute/filling_pages.h"

#include <algorithm>
#include <string>

namespace assay {

FillingPages::FillingPages(int32_t count) {
  for (int32_t slot = count; slot-- > 0;) free_.push_back(slot);
}

absl::Status FillingPages::stage(const StepPlan& plan, const PagedKvView& view, Device& device) {
  if (view.record_tokens == kTileTokens) return absl::OkStatus();
  for (const int64_t id : plan.ended_sequences) {
    const auto ended = sequences_.find(id);
    if (ended == sequences_.end()) continue;
    if (absl::Status status = clear(ended->second, view, device); !status.ok()) return status;
    free_.push_back(ended->second.slot);
    sequences_.erase(ended);
  }
  for (const SequenceSlice& slice : plan.slices) {
    if (absl::Status status = stage_slice(slice, view, device); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A page that this slice completes keeps its entry for the step, which reads it exact and then encodes it; the page
// that the slice leaves part full may share the slot, since rows are written in order.
absl::Status FillingPages::stage_slice(const SequenceSlice& slice, const PagedKvView& view, Device& device) {
  const int32_t end = slice.first_position + slice.num_tokens;
  const int32_t first_page = slice.first_position / view.page_tokens, last_page = end / view.page_tokens;
  const bool starts_inside = slice.first_position % view.page_tokens != 0, ends_inside = end % view.page_tokens != 0;
  const auto found = sequences_.find(slice.sequence_id);
  const auto holds = [&](int32_t page) {
    const std::vector<int32_t>& pages = found->second.pages;
    return std::find(pages.begin(), pages.end(), page) != pages.end();
  };
  if (starts_inside && (found == sequences_.end() || !holds(slice.pages[first_page]))) {
    return absl::InternalError("step plan, sequence " + std::to_string(slice.sequence_id) +
                               ": it starts inside a page that no earlier step left part full");
  }
  if (!starts_inside && !ends_inside && found == sequences_.end()) return absl::OkStatus();
  if (found == sequences_.end() && free_.empty()) {
    return absl::InternalError("more sequences with a page that is filling than max_num_seqs");
  }
  Filling& filling = sequences_[slice.sequence_id];
  if (filling.slot < 0) {
    filling.slot = free_.back();
    free_.pop_back();
  }
  std::vector<int32_t> wanted;
  if (starts_inside) wanted.push_back(slice.pages[first_page]);
  if (ends_inside && !(starts_inside && last_page == first_page)) wanted.push_back(slice.pages[last_page]);
  if (wanted == filling.pages) return absl::OkStatus();
  if (absl::Status status = clear(filling, view, device); !status.ok()) return status;
  filling.pages = std::move(wanted);
  for (const int32_t page : filling.pages) {
    if (absl::Status status = set(view, page, filling.slot, device); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FillingPages::clear(Filling& filling, const PagedKvView& view, Device& device) {
  for (const int32_t page : filling.pages) {
    if (absl::Status status = set(view, page, -1, device); !status.ok()) return status;
  }
  filling.pages.clear();
  return absl::OkStatus();
}

absl::Status FillingPages::set(const PagedKvView& view, int32_t page, int32_t slot, Device& device) const {
  const int32_t heads = view.num_layers * view.num_kv_heads;
  for (int32_t head = 0; head < heads; ++head) {
    const int32_t value = slot < 0 ? -1 : slot * heads + head;
    int32_t* const entry = view.exact.slots + view.exact_key(head / view.num_kv_heads, head % view.num_kv_heads, page);
    const KernelError copied = device.copy_to_device(entry, &value, sizeof value);
    if (copied != KernelError::kOk) return absl::InternalError(kernel_error_name(copied));
  }
  return absl::OkStatus();
}

}  // namespace assay
