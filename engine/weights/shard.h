// The part of a tensor that one rank of `size` holds. Views only.
//
// Column parallel (q, k, v, gate, up): a rank has some output rows. Row parallel (o, down): a rank has some input
// columns, and the ranks' results are summed. KV heads fewer than ranks are held by several ranks.
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"

namespace assay {

struct Shard {
  int rank = 0;
  int size = 1;

  // First of `count` units for this rank, and how many. count is a multiple of size, or size a multiple of count.
  int64_t units(int64_t count) const { return count >= size ? count / size : 1; }
  int64_t first_unit(int64_t count) const { return count >= size ? units(count) * rank : rank / (size / count); }

  // `units` equal groups of rows (heads, or single rows).
  ConstTensor rows(const ConstTensor& tensor, int64_t unit_count) const {
    const int64_t unit_rows = tensor.rows / unit_count;
    return {tensor.row(first_unit(unit_count) * unit_rows), tensor.dtype, units(unit_count) * unit_rows, tensor.cols,
            tensor.row_stride};
  }

  ConstTensor columns(const ConstTensor& tensor, int64_t unit_count) const {
    const int64_t unit_cols = tensor.cols / unit_count;
    const int64_t offset = first_unit(unit_count) * unit_cols * static_cast<int64_t>(dtype_bytes(tensor.dtype));
    return {static_cast<const std::byte*>(tensor.data) + offset, tensor.dtype, tensor.rows,
            units(unit_count) * unit_cols, tensor.row_stride};
  }
};

}  // namespace assay
