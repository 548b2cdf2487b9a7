// The pools a KV cache can be made of: what a page stores and exactly how many bytes that takes.
//
// A layout is a plain value; it owns no memory. `make_pool_layout` is the registry: the only place that knows pool
// names. Threads: values. Errors: InvalidArgument for an unknown name or a shape the pool cannot hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

// What the model needs stored.
struct KvShape {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;  // of this rank
  int32_t head_dim = 0;
  int32_t page_tokens = 0;        // a multiple of 16
  DType row_dtype = DType::kF32;  // of exact rows
};

struct PoolLayout {
  std::string name;
  KvFormat format = KvFormat::kExact;
  KvShape shape;
  int64_t record_bytes = 0;              // 16 tokens of one KV head in one layer
  int32_t side_bytes_per_page_head = 0;  // beside the records, per page and KV head of one layer
  const char* granularity = "none";      // of the scales: none, token, group, channel, tensor
  const char* scale_source = "none";     // none, row, calibration

  int64_t bytes_per_page() const;        // records: all layers, K and V
  int64_t side_bytes_per_page() const;   // beside them, all layers
  int32_t bytes_per_token_head() const;  // of records, one layer
  // The pool over `memory`, which holds num_pages x bytes_per_page() bytes. Its tables are the caller's to set.
  PagedKvView view(void* memory, int32_t num_pages) const;
};

std::vector<std::string> pool_names();

// `name` is a pool, or FAMILY:SCHEME for pools with schemes.
absl::StatusOr<PoolLayout> make_pool_layout(const std::string& name, const KvShape& shape);

}  // namespace assay
