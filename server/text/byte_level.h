// The byte-level alphabet: each of the 256 bytes written as one printable character. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay {

// The character (below U+0144) that stands for `byte`.
char32_t byte_level_char(uint8_t byte);

// Each byte of `bytes` as its character, appended to `out`.
void append_byte_level(std::string& out, std::string_view bytes);

// The bytes that `text` stands for. Text with a character outside of the alphabet stands for its own UTF-8 bytes.
std::string byte_level_bytes(std::string_view text);

}  // namespace assay
