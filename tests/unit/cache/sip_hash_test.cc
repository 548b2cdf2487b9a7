#include "cache/sip_hash.h"

#include "gtest/gtest.h"

namespace assay {
namespace {

// Published SipHash-2-4 values for the key 00 01 .. 0f and the messages of 0 and 8 bytes 00 01 ...
constexpr SipKey kKey{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};

TEST(SipHash, GivesThePublishedValues) {
  EXPECT_EQ(SipHasher(kKey).finish(), 0x726fdb47dd0e0e31ULL);
  SipHasher eight(kKey);
  eight.add(0x0706050403020100ULL);
  EXPECT_EQ(eight.finish(), 0x93f5f5799a932462ULL);
}

TEST(SipHash, TextsOfDifferentLengthDiffer) {
  const auto hash = [](const std::string& a, const std::string& b) {
    SipHasher hasher(kKey);
    hasher.add(a);
    hasher.add(b);
    return hasher.finish();
  };
  EXPECT_NE(hash("ab", ""), hash("a", "b"));
  EXPECT_NE(hash("", "ab"), hash("ab", ""));
  EXPECT_NE(hash(std::string(1, '\0'), ""), hash("", ""));
  EXPECT_EQ(hash("0123456789", "x"), hash("0123456789", "x"));
}

TEST(SipHash, DependsOnTheKey) {
  EXPECT_NE(SipHasher(kKey).finish(), SipHasher(SipKey{1, 2}).finish());
}

}  // namespace
}  // namespace assay
