#include "engine/execute/kv_pool.h"

#include <string>

#include "kernels/kv/philox.h"

namespace assay {
namespace {

absl::Status allocate(Device& device, int64_t bytes, Buffer& to) {
  to = Buffer::make(device, static_cast<size_t>(bytes));
  if (bytes == 0 || to.data() != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError("no room for a KV cache of " + std::to_string(bytes >> 20) + " MiB");
}

// Copies `values` to device memory and points `at` there; null for none.
template <class T>
absl::Status upload(Device& device, const std::vector<T>& values, Buffer& to, const T*& at) {
  const size_t bytes = values.size() * sizeof(T);
  if (absl::Status status = allocate(device, static_cast<int64_t>(bytes), to); !status.ok() || bytes == 0)
    return status;
  const KernelError copied = device.copy_to_device(to.data(), values.data(), bytes);
  if (copied != KernelError::kOk) return absl::InternalError(kernel_error_name(copied));
  at = static_cast<const T*>(to.data());
  return absl::OkStatus();
}

// [layer][KV head][head_dim][kDitherPeriod].
std::vector<float> dither_table(const PagedKvView& view, uint64_t seed) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(view.num_layers) * static_cast<size_t>(view.num_kv_heads * view.head_dim) *
                kv::kDitherPeriod);
  for (int32_t layer = 0; layer < view.num_layers; ++layer) {
    for (int32_t head = 0; head < view.num_kv_heads; ++head) {
      const uint32_t global = static_cast<uint32_t>(view.tables.first_kv_head + head);
      for (int32_t c = 0; c < view.head_dim; ++c) {
        for (uint32_t row = 0; row < kv::kDitherPeriod; ++row) {
          table.push_back(kv::dither_at(seed, static_cast<uint32_t>(layer), global, row, static_cast<uint32_t>(c)));
        }
      }
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<KvPool> KvPool::make(Device& device, const PoolLayout& layout, int32_t num_pages,
                                    const PoolTransform& transform, int32_t filling_pages, int32_t repair_slots) {
  KvPool pool;
  absl::Status status = allocate(device, num_pages * layout.bytes_per_page(), pool.records_);
  if (status.ok()) status = allocate(device, num_pages * layout.side_bytes_per_page(), pool.value_norms_);
  if (!status.ok()) return status;
  pool.view_ = layout.view(pool.records_.data(), num_pages);
  pool.view_.tables.value_norms = static_cast<uint16_t*>(pool.value_norms_.data());
  status = pool.add_tables(device, transform);
  if (layout.encodes_whole_pages()) {
    pool.first_repair_slot_ = filling_pages * layout.shape.num_layers * layout.shape.num_kv_heads;
  }
  const int64_t slots = int64_t{pool.first_repair_slot_} + repair_slots;
  if (status.ok() && slots > 0) status = pool.add_exact_pages(device, slots);
  if (!status.ok()) return status;
  return pool;
}

absl::Status KvPool::add_tables(Device& device, const PoolTransform& transform) {
  KvPoolTables& tables = view_.tables;
  tables.dither_stream = transform.dither_stream;
  tables.seed = transform.seed;
  const bool periodic = transform.dither_stream == DitherStream::kPeriodic;
  const std::vector<float> dither = periodic ? dither_table(view_, transform.seed) : std::vector<float>();
  for (const absl::Status& status :
       {upload(device, transform.signs, signs_, tables.signs), upload(device, transform.lambda, lambda_, tables.lambda),
        upload(device, transform.bypass, bypass_, tables.bypass),
        upload(device, transform.key_scale, key_scale_, tables.key_scale),
        upload(device, transform.value_scale, value_scale_, tables.value_scale),
        upload(device, dither, dither_, tables.dither)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status KvPool::add_exact_pages(Device& device, int64_t num_slots) {
  const int64_t heads = int64_t{view_.num_layers} * view_.num_kv_heads;
  const std::vector<int32_t> none(static_cast<size_t>(heads * view_.num_pages), -1);
  const int32_t* slots = nullptr;
  if (absl::Status status = upload(device, none, exact_slots_, slots); !status.ok()) return status;
  if (absl::Status status = allocate(device, num_slots * view_.exact_slot_bytes(), exact_rows_); !status.ok()) {
    return status;
  }
  view_.exact = {static_cast<std::byte*>(exact_rows_.data()), static_cast<int32_t*>(exact_slots_.data())};
  return absl::OkStatus();
}

}  // namespace assay
