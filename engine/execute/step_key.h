// What the launches of a step depend on, as numbers: steps with equal keys issue the same operations on the same
// memory. Pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/kv/fold_cell.h"
#include "kernels/ops.h"

namespace assay {

// Appends the bytes of a view. Padding may differ between equal views; then a step is only taken for a new one.
template <class View>
void append_view(const View& view, std::vector<uint64_t>& key) {
  static_assert(std::is_trivially_copyable_v<View>);
  const size_t first = key.size();
  key.resize(first + (sizeof(View) + 7) / 8);
  std::memcpy(key.data() + first, &view, sizeof(View));
}

// Steps that are worth repeating: each sequence decodes one token.
inline bool is_repeatable(const BatchView& batch) {
  return batch.num_decodes == batch.num_sequences && batch.num_tokens == batch.num_sequences;
}

inline std::vector<uint64_t> step_key(const BatchView& batch, const PagedKvView& cache, const kv::MeterView& meter) {
  std::vector<uint64_t> key;
  append_view(batch, key);
  append_view(cache, key);
  append_view(meter, key);
  return key;
}

}  // namespace assay
