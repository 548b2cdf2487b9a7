// Python's view of text on UTF-8 bytes: characters, white space, case, repr of strings and floats.
//
// Threads: pure functions. Errors: none; a byte that is not UTF-8 counts as one character and is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::jinja {

// Length in bytes of the character at `pos` (at least 1), and its code point (the byte's value when it is not UTF-8).
struct Character {
  int32_t code_point;
  size_t bytes;
};
Character character_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, uint32_t code_point);

bool is_ascii(std::string_view text);
size_t character_count(std::string_view text);
// Byte offset of every character, then text.size().
std::vector<size_t> character_offsets(std::string_view text);

// str.isspace() and friends, of one character.
bool is_space(int32_t code_point);
bool is_line_break(int32_t code_point);
bool is_alpha(int32_t code_point);
bool is_digit(int32_t code_point);
bool is_alphanumeric(int32_t code_point);
bool is_upper(int32_t code_point);
bool is_lower(int32_t code_point);
bool is_title(int32_t code_point);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);       // str.title()
std::string to_capitalized(std::string_view text);  // str.capitalize()

size_t skip_space(std::string_view text, size_t pos);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

std::string quote(std::string_view text);  // repr(str)
std::string float_repr(double value);      // repr(float)

}  // namespace assay::jinja
