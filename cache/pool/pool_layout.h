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

// Settings of pools that have them.
struct PoolOptions {
  int32_t outlier_pairs = 0;  // witcert: rotary pairs of K stored without loss, per layer and KV head
};

struct PoolLayout {
  std::string name;
  KvFormat format = KvFormat::kExact;
  KvShape shape;
  int64_t record_bytes = 0;  // record_tokens tokens of one KV head in one layer
  int32_t record_tokens = kTileTokens;
  int32_t side_bytes_per_page_head = 0;  // beside the records, per page and KV head of one layer
  int32_t bypass_channels = 0;           // of K, stored in row_dtype
  const kv::ObservedScheme* scheme = nullptr;
  std::string dtype;                  // of what a record stores, for people
  const char* granularity = "none";   // of the scales: none, token, group, channel, tensor
  const char* scale_source = "none";  // none, row, calibration

  int64_t bytes_per_page() const;        // records: all layers, K and V
  int64_t side_bytes_per_page() const;   // beside them, all layers
  int32_t bytes_per_token_head() const;  // of records, one layer, rounded down
  // Records hold more than one tile: a page that is still filling needs exact rows beside them.
  bool encodes_whole_pages() const { return record_tokens > kTileTokens; }
  // The pool over `memory`, which holds num_pages x bytes_per_page() bytes. Its tables are the caller's to set.
  PagedKvView view(void* memory, int32_t num_pages) const;
};

std::vector<std::string> pool_names();

// `name` is a pool, or FAMILY:SCHEME for pools with schemes.
absl::StatusOr<PoolLayout> make_pool_layout(const std::string& name, const KvShape& shape,
                                            const PoolOptions& options = {});

}  // namespace assay
