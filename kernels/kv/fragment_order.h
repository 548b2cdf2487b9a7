// Where one element of a 16-token tile lies when payloads are in matrix fragment order (m16n8k16, A operand): K as
// tokens x channels, V transposed as channels x tokens; each lane of a warp finds its 16 bytes in a row. A pure index
// function: a bijection of (token, channel) onto [0, 16 head_dim), the same bytes as row major, permuted.
// head_dim is a multiple of 32; below that (head_dim 16, CPU only) a tile is row major.
#pragma once

#include "kernels/kv/host_device.h"

namespace assay::kv {

ASSAY_HOST_DEVICE bool has_fragment_order(int head_dim) {
  return head_dim % 32 == 0;
}

// Byte of (token 0..15, channel) in the K payload of a tile.
ASSAY_HOST_DEVICE int key_fragment_index(int token, int channel, int head_dim) {
  if (!has_fragment_order(head_dim)) return token * head_dim + channel;
  const int lane = (token & 7) * 4 + (channel % 32) / 8;
  const int word = ((channel >> 2) & 1) * 2 + (token >> 3);
  return (channel / 32) * 512 + lane * 16 + word * 4 + (channel & 3);
}

// Byte of (token, channel) in the V payload of a tile.
ASSAY_HOST_DEVICE int value_fragment_index(int token, int channel, int head_dim) {
  if (!has_fragment_order(head_dim)) return token * head_dim + channel;
  const int row = channel % 16;
  const int lane = (row & 7) * 4 + ((token & 7) >> 1);
  const int word = ((channel / 16) & 1) * 2 + (row >> 3);
  return (channel / 32) * 512 + lane * 16 + word * 4 + (token & 1) + (token >> 3) * 2;
}

// Place of a token's number in the 16-entry arrays of V scales and rho: tokens 2j, 2j+1, 2j+8, 2j+9 side by side, so
// that a lane reads its four at once. K scales and witnesses are in token order.
ASSAY_HOST_DEVICE int value_side_index(int token) {
  return ((token & 7) >> 1) * 4 + (token & 1) + (token >> 3) * 2;
}

}  // namespace assay::kv
