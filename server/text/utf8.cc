#include "server/text/utf8.h"

#include <cstring>

namespace assay {
namespace {

struct Sequence {
  size_t length;   // bytes that belong together: a character, or a maximal ill-formed part
  bool valid;      // a whole character
  bool truncated;  // ill-formed only because the input ends
};

// Allowed range of the second byte, which excludes overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  int length;
  unsigned char low;
  unsigned char high;
};

Lead classify(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

Sequence scan(std::string_view bytes, size_t offset) {
  const Lead lead = classify(static_cast<unsigned char>(bytes[offset]));
  if (lead.length == 0) return {1, false, false};
  for (int i = 1; i < lead.length; ++i) {
    if (offset + i == bytes.size()) return {static_cast<size_t>(i), false, true};
    const auto byte = static_cast<unsigned char>(bytes[offset + i]);
    const bool good = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!good) return {static_cast<size_t>(i), false, false};
  }
  return {static_cast<size_t>(lead.length), true, false};
}

bool eight_ascii(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return (word & 0x8080808080808080ull) == 0;
}

}  // namespace

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string to_utf8(char32_t c) {
  std::string out;
  append_utf8(out, c);
  return out;
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    while (i + 8 <= bytes.size() && eight_ascii(bytes.data() + i)) i += 8;
    if (i == bytes.size()) break;
    const Sequence sequence = scan(bytes, i);
    if (!sequence.valid) return i;
    i += sequence.length;
  }
  return i;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  Utf8Assembler assembler;
  assembler.push(bytes, out);
  assembler.finish(out);
  return out;
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_.append(bytes);
    held_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const Sequence sequence = scan(bytes, 0);
    if (sequence.truncated) {
      held_ = bytes;
      return;
    }
    out.append(kReplacementCharacter);
    bytes.remove_prefix(sequence.length);
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!held_.empty()) out.append(kReplacementCharacter);
  held_.clear();
}

}  // namespace assay
