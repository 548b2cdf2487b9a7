#include "server/text/byte_level.h"

#include <array>

#include "server/text/utf8.h"

namespace assay {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kAlphabetEnd> bytes{};
  std::array<std::string, 256> texts;

  // Printable Latin-1 characters stand for themselves; the rest are numbered from U+0100 in the order of the bytes.
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      chars[byte] = printable ? byte : next++;
      bytes[chars[byte]] = static_cast<int16_t>(byte);
      texts[byte] = to_utf8(chars[byte]);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

char32_t byte_level_char(uint8_t byte) {
  return alphabet().chars[byte];
}

void append_byte_level(std::string& out, std::string_view bytes) {
  const Alphabet& table = alphabet();
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte > ' ' && byte < 0x7F) {
      out.push_back(c);
    } else {
      out.append(table.texts[byte]);
    }
  }
}

std::string byte_level_bytes(std::string_view text) {
  const Alphabet& table = alphabet();
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = utf8_next(text, i);
    if (c >= kAlphabetEnd || table.bytes[c] < 0) return std::string(text);
    out.push_back(static_cast<char>(table.bytes[c]));
  }
  return out;
}

}  // namespace assay
