// Philox4x32-10 against its known answers, and the dither drawn from it.
#include "kernels/kv/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace assay::kv {
namespace {

void expect_words(PhiloxBlock counter, uint32_t key0, uint32_t key1, PhiloxBlock expected) {
  const PhiloxBlock drawn = philox4x32_10(counter, key0, key1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(drawn.word[i], expected.word[i]) << i;
}

TEST(Philox, KnownAnswers) {
  expect_words({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_words({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff,
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0,
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Dither, EveryWordGivesAMultipleOfTheLatticeInsideTheUnitCell) {
  for (uint64_t word = 0; word < 0x100000000u; word += 65521) {
    const float xi = dither_from_word(static_cast<uint32_t>(word));
    EXPECT_GE(xi, -0.5f);
    EXPECT_LT(xi, 0.5f);
    EXPECT_EQ(xi * 4096, std::floor(xi * 4096));
    EXPECT_EQ(half_to_float(half_nearest(xi)), xi) << "must survive storage as fp16";
  }
  EXPECT_EQ(dither_from_word(0), -0.5f);
  EXPECT_EQ(dither_from_word(0xffffffff), 0.5f - kDitherLattice);
}

TEST(Dither, RowIsItsChannels) {
  std::vector<float> row(128);
  dither_row(0x0123456789abcdef, 31, 7, 12345, 128, row.data());
  for (uint32_t c = 0; c < 128; ++c) EXPECT_EQ(row[c], dither_at(0x0123456789abcdef, 31, 7, 12345, c));
}

TEST(Dither, EveryCounterFieldMatters) {
  std::set<std::vector<float>> rows;
  std::vector<float> row(16);
  const auto add = [&](uint64_t seed, uint32_t layer, uint32_t head, uint32_t slot) {
    dither_row(seed, layer, head, slot, 16, row.data());
    rows.insert(row);
  };
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (uint32_t layer = 0; layer < 4; ++layer) {
      for (uint32_t head = 0; head < 4; ++head) {
        for (uint32_t slot = 0; slot < 8; ++slot) add(seed, layer, head, slot);
      }
    }
  }
  EXPECT_EQ(rows.size(), 3u * 4 * 4 * 8);
  EXPECT_NE(random_word(RandomStream::kDither, 1, 2, 3, 4, 5),
            random_word(RandomStream::kRotationSigns, 1, 2, 3, 4, 5));
}

// Chi-square over 64 cells of 1,048,576 draws: mean 63, standard deviation 11.2.
TEST(Dither, IsUniform) {
  std::vector<double> cells(64);
  std::vector<float> row(256);
  for (uint32_t slot = 0; slot < 4096; ++slot) {
    dither_row(99, 1, 2, slot, 256, row.data());
    for (float xi : row) ++cells[static_cast<size_t>((xi + 0.5f) * 64)];
  }
  double chi_square = 0;
  for (double n : cells) chi_square += (n - 16384) * (n - 16384) / 16384;
  EXPECT_GT(chi_square, 25);
  EXPECT_LT(chi_square, 120);
}

}  // namespace
}  // namespace assay::kv
