// Inside one observed record: what its scheme needs to know of a tile, and where its parts lie. Host code.
#pragma once

#include "kernels/kv/observed_codecs.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

struct ObservedRecord {
  int64_t key_bytes = 0, value_bytes = 0;
  int32_t tokens = 0, bands = 0;

  static ObservedRecord make(const kv::ObservedScheme& scheme, int32_t head_dim, DType dtype) {
    kv::TileContext tile;
    tile.head_dim = head_dim;
    tile.tokens = scheme.tile_tokens;
    tile.dtype = dtype;
    ObservedRecord record;
    record.tokens = scheme.tile_tokens;
    record.bands = kv::band_count(head_dim);
    record.key_bytes = scheme.bytes(tile);
    tile.side = kv::KvSide::kValue;
    record.value_bytes = scheme.bytes(tile);
    return record;
  }

  int64_t witness() const { return key_bytes + value_bytes; }  // fp16 [tokens][bands]
  int64_t rho() const { return witness() + int64_t{tokens} * bands * 2; }
  int64_t bytes() const { return rho() + int64_t{tokens} * 2; }
};

// Of one side of the tile whose first token is at `position`. Draws go by position, so a row's bytes do not depend on
// which page it lies in.
inline kv::TileContext observed_tile(const PagedKvView& cache, int32_t layer, int32_t kv_head, kv::KvSide side,
                                     int32_t position) {
  const KvPoolTables& tables = cache.tables;
  const float* scales = side == kv::KvSide::kKey ? tables.key_scale : tables.value_scale;
  kv::TileContext tile;
  tile.head_dim = cache.head_dim;
  tile.tokens = tables.scheme->tile_tokens;
  tile.side = side;
  tile.dtype = cache.dtype;
  if (scales != nullptr) tile.static_scale = scales[int64_t{layer} * cache.num_kv_heads + kv_head];
  tile.seed = tables.seed;
  tile.layer = static_cast<uint32_t>(layer);
  tile.kv_head = static_cast<uint32_t>(tables.first_kv_head + kv_head);
  tile.first_slot = static_cast<uint32_t>(position);
  return tile;
}

}  // namespace assay
