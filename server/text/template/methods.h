// Tables of the methods of each type.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/text/template/runtime.h"

namespace assay::jinja {

std::span<const Builtin> string_methods();     // splitting, searching, padding
std::span<const Builtin> character_methods();  // case and character classes
std::span<const Builtin> sequence_methods();   // list, tuple, range
std::span<const Builtin> dict_methods();
std::span<const Builtin> number_methods();

inline const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (name == builtin.name) return &builtin;
  }
  return nullptr;
}

// str.strip(chars): of the characters in `chars`, or of white space when it is null. sides: 1 left, 2 right, 3 both.
std::string strip_text(Budget& budget, std::string_view text, const std::string* chars, int sides);
std::string replace_text(Budget& budget, const std::string& text, const std::string& from, const std::string& to,
                         int64_t count);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

}  // namespace assay::jinja
