#include "engine/execute/kv_pool.h"

#include <string>

namespace assay {
namespace {

absl::StatusOr<Buffer> make_buffer(Device& device, int64_t bytes) {
  Buffer buffer = Buffer::make(device, static_cast<size_t>(bytes));
  if (bytes > 0 && buffer.data() == nullptr) {
    return absl::ResourceExhaustedError("no room for a KV cache of " + std::to_string(bytes >> 20) + " MiB");
  }
  return buffer;
}

absl::StatusOr<Buffer> upload(Device& device, const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  absl::StatusOr<Buffer> buffer = make_buffer(device, static_cast<int64_t>(bytes));
  if (!buffer.ok() || bytes == 0) return buffer;
  const KernelError copied = device.copy_to_device(buffer->data(), values.data(), bytes);
  if (copied != KernelError::kOk) return absl::InternalError(kernel_error_name(copied));
  return buffer;
}

}  // namespace

absl::StatusOr<KvPool> KvPool::make(Device& device, const PoolLayout& layout, int32_t num_pages,
                                    const PoolTransform& transform) {
  KvPool pool;
  struct Piece {
    Buffer* to;
    absl::StatusOr<Buffer> from;
  };
  Piece pieces[] = {{&pool.records_, make_buffer(device, num_pages * layout.bytes_per_page())},
                    {&pool.value_norms_, make_buffer(device, num_pages * layout.side_bytes_per_page())},
                    {&pool.signs_, upload(device, transform.signs)},
                    {&pool.lambda_, upload(device, transform.lambda)}};
  for (Piece& piece : pieces) {
    if (!piece.from.ok()) return piece.from.status();
    *piece.to = *std::move(piece.from);
  }
  pool.view_ = layout.view(pool.records_.data(), num_pages);
  pool.view_.tables.signs = static_cast<const float*>(pool.signs_.data());
  pool.view_.tables.lambda = static_cast<const float*>(pool.lambda_.data());
  pool.view_.tables.value_norms = static_cast<uint16_t*>(pool.value_norms_.data());
  return pool;
}

}  // namespace assay
