#include "cache/pool/pool_layout.h"

#include <array>

namespace assay {
namespace {

absl::Status check_shape(const KvShape& shape) {
  const auto invalid = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (shape.page_tokens < kTileTokens || shape.page_tokens % kTileTokens != 0) {
    return invalid("block_size is " + std::to_string(shape.page_tokens) + ": it must be a multiple of 16, 16 or more");
  }
  if (shape.num_layers < 1 || shape.num_kv_heads < 1)
    return invalid("a KV cache needs at least one layer and one KV head");
  if (shape.head_dim < 2 || shape.head_dim % 2 != 0) {
    return invalid("head_dim is " + std::to_string(shape.head_dim) + ": it must be even");
  }
  return absl::OkStatus();
}

absl::StatusOr<PoolLayout> make_exact(const std::string& scheme, const KvShape& shape) {
  if (!scheme.empty()) return absl::InvalidArgumentError("kv_pool exact takes no scheme (got \"" + scheme + "\")");
  PoolLayout layout;
  layout.name = "exact";
  layout.shape = shape;
  layout.record_bytes = ExactRecord::bytes(shape.head_dim, shape.row_dtype);
  return layout;
}

absl::Status check_compressed_shape(const std::string& name, const KvShape& shape) {
  const int32_t d = shape.head_dim;
  if (d >= 16 && d <= kv::kMaxHeadDim && (d & (d - 1)) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("kv_pool " + name + " needs a head_dim that is a power of two, 16 to 512; this " +
                                    "model's is " + std::to_string(d) + ": use kv_pool exact");
}

absl::StatusOr<PoolLayout> make_certified(const std::string& scheme, const KvShape& shape) {
  if (!scheme.empty()) return absl::InvalidArgumentError("kv_pool certified takes no scheme (got \"" + scheme + "\")");
  if (absl::Status status = check_compressed_shape("certified", shape); !status.ok()) return status;
  PoolLayout layout;
  layout.name = "certified";
  layout.format = KvFormat::kCertified;
  layout.shape = shape;
  layout.record_bytes = CertifiedRecord::bytes(shape.head_dim);
  layout.side_bytes_per_page_head = sizeof(uint16_t);
  layout.granularity = "token";
  layout.scale_source = "row";
  return layout;
}

struct Pool {
  const char* name;
  absl::StatusOr<PoolLayout> (*make)(const std::string& scheme, const KvShape& shape);
};
constexpr std::array kPools = {Pool{"exact", make_exact}, Pool{"certified", make_certified}};

}  // namespace

int64_t PoolLayout::bytes_per_page() const {
  return record_bytes * (shape.page_tokens / kTileTokens) * shape.num_kv_heads * shape.num_layers;
}

int64_t PoolLayout::side_bytes_per_page() const {
  return int64_t{side_bytes_per_page_head} * shape.num_kv_heads * shape.num_layers;
}

int32_t PoolLayout::bytes_per_token_head() const {
  return static_cast<int32_t>(record_bytes / kTileTokens);
}

PagedKvView PoolLayout::view(void* memory, int32_t num_pages) const {
  PagedKvView view;
  view.base = static_cast<std::byte*>(memory);
  view.format = format;
  view.dtype = shape.row_dtype;
  view.num_layers = shape.num_layers;
  view.num_pages = num_pages;
  view.page_tokens = shape.page_tokens;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  view.record_bytes = record_bytes;
  return view;
}

std::vector<std::string> pool_names() {
  std::vector<std::string> names;
  for (const Pool& pool : kPools) names.emplace_back(pool.name);
  return names;
}

absl::StatusOr<PoolLayout> make_pool_layout(const std::string& name, const KvShape& shape) {
  if (absl::Status status = check_shape(shape); !status.ok()) return status;
  const size_t colon = name.find(':');
  const std::string family = name.substr(0, colon);
  const std::string scheme = colon == std::string::npos ? "" : name.substr(colon + 1);
  std::string known;
  for (const Pool& pool : kPools) {
    if (family == pool.name) return pool.make(scheme, shape);
    known += (known.empty() ? "" : ", ") + std::string(pool.name);
  }
  return absl::InvalidArgumentError("kv_pool \"" + name + "\" is not known; known pools: " + known);
}

}  // namespace assay
