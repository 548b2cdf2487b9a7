// UTF-8 in and out: decoding, encoding and the replacement of what is not UTF-8.
//
// Replacement rule, everywhere: each maximal part of an ill-formed sequence becomes one U+FFFD (the Unicode standard's
// recommended practice). Threads: free functions are pure; Utf8Assembler has one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace assay {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Length in bytes of the character that starts at text[offset]; `text` must be valid UTF-8 and offset < size.
inline size_t utf8_length_at(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The character at text[offset], which moves behind it. `text` must be valid UTF-8 and offset < size.
inline char32_t utf8_next(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const size_t length = utf8_length_at(text, offset);
  char32_t c = byte(0);
  if (length == 2) c = (c & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) c = (c & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3F);
  if (length == 4) c = (c & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3F);
  offset += length;
  return c;
}

// Start of the last character of `text`, which must be valid UTF-8 and not empty.
inline size_t utf8_last_start(std::string_view text) {
  size_t start = text.size() - 1;
  while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

// Appends the UTF-8 form of a Unicode scalar value.
void append_utf8(std::string& out, char32_t c);
std::string to_utf8(char32_t c);

// Number of leading bytes that are valid UTF-8 (whole characters only).
size_t valid_utf8_prefix(std::string_view bytes);

// Bytes -> valid UTF-8.
std::string replace_invalid_utf8(std::string_view bytes);

// The same over a stream: gives out whole characters, holds back at most three bytes of one that may still be
// completed.
class Utf8Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);  // what was held back becomes U+FFFD
  bool empty() const { return held_.empty(); }

 private:
  std::string held_;
};

}  // namespace assay
