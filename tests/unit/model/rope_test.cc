// Rotary frequencies against values computed in double precision from the definitions of each kind.
#include "engine/model/rope.h"

#include <cmath>

#include "gtest/gtest.h"

namespace assay {
namespace {

struct Expected {
  size_t pair;
  double inv_freq;
};

void expect(const RopeFrequencies& rope, const std::vector<Expected>& expected) {
  for (const auto& [pair, inv_freq] : expected) EXPECT_NEAR(rope.inv_freq.at(pair) / inv_freq, 1.0, 1e-6) << pair;
}

TEST(Rope, DefaultAndLinear) {
  RopeConfig rope;
  expect(rope_frequencies(rope, 128, 4096, 4096), {{0, 1.0}, {32, 0.01}, {48, 1e-3}});
  rope.kind = RopeKind::kLinear;
  rope.factor = 4.0;
  expect(rope_frequencies(rope, 128, 4096, 4096), {{0, 0.25}, {32, 0.0025}});
  EXPECT_EQ(rope_context_length(rope, 4096), 16384);
}

TEST(Rope, Llama3) {
  RopeConfig rope{.kind = RopeKind::kLlama3, .theta = 500000.0, .factor = 8.0, .original_max_position = 8192};
  const RopeFrequencies f = rope_frequencies(rope, 128, 131072, 131072);
  EXPECT_EQ(f.inv_freq.size(), 64u);
  EXPECT_EQ(f.scale, 1.0f);
  expect(f, {{0, 1.0},
             {20, 0.0165604401},
             {28, 0.00321144599},
             {29, 0.00216657076},
             {32, 0.000524846161},
             {35, 9.55621235e-05},
             {36, 7.78465527e-05},
             {63, 3.06892599e-07}});
  rope.factor = 32.0;
  expect(rope_frequencies(rope, 64, 131072, 131072), {{14, 0.00321144599},
                                                      {15, 0.00129054793},
                                                      {16, 0.000429556797},
                                                      {17, 9.7082878e-05},
                                                      {18, 1.94616382e-05},
                                                      {31, 9.41830673e-08}});
  EXPECT_EQ(rope_context_length(rope, 131072), 131072);
}

TEST(Rope, Yarn) {
  RopeConfig rope{.kind = RopeKind::kYarn, .theta = 1e6, .factor = 4.0, .original_max_position = 32768};
  const RopeFrequencies f = rope_frequencies(rope, 128, 32768, 131072);
  expect(f, {{0, 1.0},
             {20, 0.0133352143},
             {24, 0.00537532149},
             {30, 0.00106436098},
             {35, 0.000246258407},
             {39, 6.49039432e-05},
             {40, 4.44569853e-05},
             {63, 3.1023444e-07}});
  rope.truncate = false;
  expect(rope_frequencies(rope, 128, 32768, 131072),
         {{24, 0.00551727048}, {30, 0.00107923774}, {35, 0.000244518888}, {63, 3.1023444e-07}});
  EXPECT_EQ(rope_context_length(rope, 32768), 131072);
}

TEST(Rope, YarnAttentionFactor) {
  RopeConfig rope{.kind = RopeKind::kYarn, .factor = 4.0, .original_max_position = 64};
  const auto scale = [&] { return rope_frequencies(rope, 64, 4096, 4096).scale; };
  EXPECT_NEAR(scale(), 1.1386294, 1e-6);
  rope.factor = 16.0;
  EXPECT_NEAR(scale(), 1.2772589, 1e-6);
  rope.mscale = rope.mscale_all_dim = 1.0;
  EXPECT_EQ(scale(), 1.0f);
  rope.mscale = 0.5;
  EXPECT_NEAR(scale(), 1.1386294 / 1.2772589, 1e-6);
  rope.attention_factor = 1.5;
  EXPECT_EQ(scale(), 1.5f);
}

// One set of frequencies for all positions and requests, decided by the context the engine serves.
TEST(Rope, DynamicFollowsTheServedContext) {
  const RopeConfig rope{.kind = RopeKind::kDynamic, .factor = 4.0};
  expect(rope_frequencies(rope, 128, 4096, 4096), {{63, std::pow(10000.0, -126.0 / 128)}});
  expect(rope_frequencies(rope, 128, 4096, 1000), {{63, std::pow(10000.0, -126.0 / 128)}});
  expect(rope_frequencies(rope, 128, 4096, 16384), {{0, 1.0}, {63, 8.88293834e-06}});
  EXPECT_EQ(rope_context_length(rope, 4096), 16384);
}

}  // namespace
}  // namespace assay
