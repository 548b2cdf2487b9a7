// SipHash-2-4 over a message of 64-bit words: a keyed hash whose collisions a client who does not know the key cannot
// make.
//
// Threads: values. Errors: none.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace assay {

struct SipKey {
  uint64_t low = 0;
  uint64_t high = 0;
};

class SipHasher {
 public:
  explicit SipHasher(const SipKey& key)
      : v0_(key.low ^ 0x736f6d6570736575ULL),
        v1_(key.high ^ 0x646f72616e646f6dULL),
        v2_(key.low ^ 0x6c7967656e657261ULL),
        v3_(key.high ^ 0x7465646279746573ULL) {}

  void add(uint64_t word) {
    v3_ ^= word;
    round();
    round();
    v0_ ^= word;
    ++num_words_;
  }

  // Length first, then the bytes padded with zeros to whole words: two different texts never give the same words.
  void add(const std::string& text) {
    add(text.size());
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      add(word);
    }
  }

  // The hash of the words so far. Ends the message: add nothing afterwards.
  uint64_t finish() {
    add((num_words_ * 8) << 56);
    v2_ ^= 0xff;
    for (int i = 0; i < 4; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void round() {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  uint64_t v0_, v1_, v2_, v3_;
  uint64_t num_words_ = 0;
};

}  // namespace assay
