// The tile permutation is a bijection, and puts each lane's operand bytes where the matrix instruction wants them.
#include "kernels/kv/fragment_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace assay::kv {
namespace {

TEST(FragmentOrder, IsABijectionForEveryHeadDim) {
  for (int head_dim : {16, 32, 64, 96, 128, 256, 512}) {
    std::vector<int> key(static_cast<size_t>(16 * head_dim)), value(key.size());
    for (int token = 0; token < 16; ++token) {
      for (int channel = 0; channel < head_dim; ++channel) {
        ++key.at(static_cast<size_t>(key_fragment_index(token, channel, head_dim)));
        ++value.at(static_cast<size_t>(value_fragment_index(token, channel, head_dim)));
      }
    }
    for (size_t i = 0; i < key.size(); ++i) {
      ASSERT_EQ(key[i], 1) << head_dim;
      ASSERT_EQ(value[i], 1) << head_dim;
    }
  }
}

// m16n8k16, A operand: lane = 4 i + j holds, per register r, rows i + 8 (r & 1) and columns 2j, 2j+1 (+ 8 for r >= 2).
// A lane's 16 bytes are two such fragments; the column order inside a group of 32 channels is the kernel's own (each
// lane takes 8 neighbouring channels), as long as the query uses the same one.
TEST(FragmentOrder, KeyLaneReadsEightChannelsOfTwoTokens) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int channel = 8 * (lane & 3); channel < 8 * (lane & 3) + 8; ++channel) {
      for (int token : {lane >> 2, (lane >> 2) + 8}) {
        const int index = key_fragment_index(token, 64 + channel, 128);
        EXPECT_EQ(index / 512, 2);
        EXPECT_EQ(index % 512 / 16, lane);
      }
    }
  }
}

TEST(FragmentOrder, ValueLaneReadsFourTokensOfItsChannels) {
  for (int lane = 0; lane < 32; ++lane) {
    const int j = lane & 3;
    for (int channel : {lane >> 2, (lane >> 2) + 8, (lane >> 2) + 16, (lane >> 2) + 24}) {
      for (int token : {2 * j, 2 * j + 1, 2 * j + 8, 2 * j + 9}) {
        const int index = value_fragment_index(token, 32 + channel, 128);
        EXPECT_EQ(index / 512, 1);
        EXPECT_EQ(index % 512 / 16, lane);
        EXPECT_EQ(index % 4, value_side_index(token) % 4) << "bytes of a word and scales come in the same token order";
      }
    }
  }
}

TEST(FragmentOrder, ValueSideIsAPermutation) {
  std::vector<int> seen(16);
  for (int token = 0; token < 16; ++token) ++seen.at(static_cast<size_t>(value_side_index(token)));
  EXPECT_EQ(seen, std::vector<int>(16, 1));
}

}  // namespace
}  // namespace assay::kv
