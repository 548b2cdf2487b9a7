#include "cache/pool/pool_layout.h"

#include <array>

#include "kernels/kv/observed_record.h"

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

absl::StatusOr<PoolLayout> make_exact(const std::string& scheme, const KvShape& shape, const PoolOptions&) {
  if (!scheme.empty()) return absl::InvalidArgumentError("kv_pool exact takes no scheme (got \"" + scheme + "\")");
  PoolLayout layout;
  layout.name = "exact";
  layout.dtype = dtype_name(shape.row_dtype);
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

// What all compressed pools have in common.
absl::StatusOr<PoolLayout> make_compressed(const std::string& name, KvFormat format, const KvShape& shape) {
  if (absl::Status status = check_compressed_shape(name, shape); !status.ok()) return status;
  PoolLayout layout;
  layout.name = name;
  layout.format = format;
  layout.shape = shape;
  layout.dtype = "int8";
  layout.side_bytes_per_page_head = sizeof(uint16_t);
  return layout;
}

absl::StatusOr<PoolLayout> make_certified(const std::string& scheme, const KvShape& shape, const PoolOptions&) {
  if (!scheme.empty()) return absl::InvalidArgumentError("kv_pool certified takes no scheme (got \"" + scheme + "\")");
  absl::StatusOr<PoolLayout> layout = make_compressed("certified", KvFormat::kCertified, shape);
  if (!layout.ok()) return layout;
  layout->record_bytes = CertifiedRecord::bytes(shape.head_dim);
  layout->granularity = "token";
  layout->scale_source = "row";
  return layout;
}

absl::StatusOr<PoolLayout> make_witcert(const std::string& scheme, const KvShape& shape, const PoolOptions& options) {
  if (!scheme.empty()) return absl::InvalidArgumentError("kv_pool witcert takes no scheme (got \"" + scheme + "\")");
  absl::StatusOr<PoolLayout> layout = make_compressed("witcert", KvFormat::kWitcert, shape);
  if (!layout.ok()) return layout;
  const int32_t pairs = options.outlier_pairs, most = shape.head_dim / 2 < 16 ? shape.head_dim / 2 : 16;
  if (pairs < 0 || pairs > most) {
    return absl::InvalidArgumentError("kv_outlier_pairs is " + std::to_string(pairs) + ": it must be from 0 to " +
                                      std::to_string(most) + " for head_dim " + std::to_string(shape.head_dim));
  }
  layout->bypass_channels = 2 * pairs;
  layout->record_bytes = WitcertRecord::bytes(shape.head_dim, layout->bypass_channels, shape.row_dtype);
  layout->granularity = "group";
  layout->scale_source = "row";
  return layout;
}

absl::StatusOr<PoolLayout> make_observed(const std::string& name, const KvShape& shape, const PoolOptions&) {
  std::string known;
  for (const kv::ObservedScheme& scheme : kv::kObservedSchemes) {
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
    if (name != scheme.name) continue;
    absl::StatusOr<PoolLayout> layout = make_compressed("observed:" + name, KvFormat::kObserved, shape);
    if (!layout.ok()) return layout;
    if (shape.page_tokens % scheme.tile_tokens != 0) {
      return absl::InvalidArgumentError("kv_pool observed:" + name + " encodes " + std::to_string(scheme.tile_tokens) +
                                        " tokens at a time: block_size must be a multiple of it, got " +
                                        std::to_string(shape.page_tokens));
    }
    layout->scheme = &scheme;
    layout->record_bytes = ObservedRecord::make(scheme, shape.head_dim, shape.row_dtype).bytes();
    layout->record_tokens = scheme.tile_tokens;
    layout->dtype = scheme.dtype != nullptr ? scheme.dtype : dtype_name(shape.row_dtype);
    layout->granularity = scheme.granularity;
    layout->scale_source = scheme.scale_source;
    return layout;
  }
  return absl::InvalidArgumentError("kv_pool observed: the scheme \"" + name +
                                    "\" is not known; known schemes: " + known);
}

struct Pool {
  const char* name;
  absl::StatusOr<PoolLayout> (*make)(const std::string& scheme, const KvShape& shape, const PoolOptions& options);
};
constexpr std::array kPools = {Pool{"exact", make_exact}, Pool{"certified", make_certified},
                               Pool{"witcert", make_witcert}, Pool{"observed", make_observed}};

}  // namespace

int64_t PoolLayout::bytes_per_page() const {
  return record_bytes * (shape.page_tokens / record_tokens) * shape.num_kv_heads * shape.num_layers;
}

int64_t PoolLayout::side_bytes_per_page() const {
  return int64_t{side_bytes_per_page_head} * shape.num_kv_heads * shape.num_layers;
}

int32_t PoolLayout::bytes_per_token_head() const {
  return static_cast<int32_t>(record_bytes / record_tokens);
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
  view.record_tokens = record_tokens;
  view.tables.bypass_count = bypass_channels;
  view.tables.scheme = scheme;
  return view;
}

std::vector<std::string> pool_names() {
  std::vector<std::string> names;
  for (const Pool& pool : kPools) {
    if (pool.make != make_observed) names.emplace_back(pool.name);
  }
  for (const kv::ObservedScheme& scheme : kv::kObservedSchemes) names.push_back("observed:" + std::string(scheme.name));
  return names;
}

absl::StatusOr<PoolLayout> make_pool_layout(const std::string& name, const KvShape& shape, const PoolOptions& options) {
  if (absl::Status status = check_shape(shape); !status.ok()) return status;
  const size_t colon = name.find(':');
  const std::string family = name.substr(0, colon);
  const std::string scheme = colon == std::string::npos ? "" : name.substr(colon + 1);
  for (const Pool& pool : kPools) {
    if (family == pool.name) return pool.make(scheme, shape, options);
  }
  std::string known;
  for (const std::string& pool : pool_names()) known += (known.empty() ? "" : ", ") + pool;
  return absl::InvalidArgumentError("kv_pool \"" + name + "\" is not known; known pools: " + known);
}

}  // namespace assay
