// Counts characters (code points) over the bytes of tokens, which may hold parts of characters.
#pragma once

#include <cstdint>
#include <string_view>

namespace assay {

class TextOffsets {
 public:
  // Index of the character in which `bytes` begins, then moves past them.
  int32_t advance(std::string_view bytes) {
    const bool inside = !bytes.empty() && is_continuation(bytes.front()) && characters_ > 0;
    const int32_t offset = characters_ - (inside ? 1 : 0);
    for (const char byte : bytes) characters_ += is_continuation(byte) ? 0 : 1;
    return offset;
  }

 private:
  static bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
  int32_t characters_ = 0;
};

}  // namespace assay
