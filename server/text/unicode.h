// Unicode properties and normalisation forms, as the tokenizer.json format means them. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace assay {

bool is_whitespace(char32_t c);       // White_Space
bool is_word(char32_t c);             // Alphabetic, mark, decimal digit, connector punctuation or join control
bool is_numeric(char32_t c);          // general category N
bool is_punctuation(char32_t c);      // general category P, and all punctuation and symbols of ASCII
bool is_mark(char32_t c);             // general category M
bool is_nonspacing_mark(char32_t c);  // Mn
bool is_other(char32_t c);            // general category C

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8; so is the result. Time n log n: long runs of combining marks are sorted, not bubbled.
std::string normalize(std::string_view text, NormalForm form);

// Full lower-case mapping of each character by itself (no context rules).
std::string lowercase(std::string_view text);

}  // namespace assay
