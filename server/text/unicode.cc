#include "server/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "server/text/utf8.h"

namespace assay {
namespace {

using Codepoints = std::vector<utf8proc_int32_t>;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in(utf8proc_category_t value, utf8proc_category_t first, utf8proc_category_t last) {
  return value >= first && value <= last;
}

// Letters by property (Other_Alphabetic) that are symbols by category; the marks among them count as words anyway.
bool is_enclosed_letter(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Characters of common scripts that NFC leaves alone and that join nothing before them: a text of these alone is in
// NFC.
bool is_plain_nfc(char32_t c) {
  return c < 0x300 || (c >= 0x388 && c <= 0x482) || (c >= 0x531 && c <= 0x588) || (c >= 0x2010 && c <= 0x2027) ||
         (c >= 0x2030 && c <= 0x205E) || (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) ||
         (c >= 0x309B && c <= 0x30FF) || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) ||
         (c >= 0xFF01 && c <= 0xFF5E) || (c >= 0x1F300 && c <= 0x1FAFF);
}

bool is_plain_nfc(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xCC) {
      ++i;  // ASCII, a character below U+0300, or a continuation byte of one
    } else if (!is_plain_nfc(utf8_next(text, i))) {
      return false;
    }
  }
  return true;
}

Codepoints decompose(std::string_view text, bool compatibility) {
  constexpr int kMostCodepoints = 32;  // the longest decomposition of one character has 18
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  Codepoints out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(utf8_next(text, i));
    utf8proc_int32_t parts[kMostCodepoints];
    int last_boundary = 0;
    const auto n = utf8proc_decompose_char(c, parts, kMostCodepoints, options, &last_boundary);
    if (n < 0 || n > kMostCodepoints) {
      out.push_back(c);
    } else {
      out.insert(out.end(), parts, parts + n);
    }
  }
  return out;
}

// Canonical ordering. utf8proc's own is a bubble sort, quadratic in the number of marks on one letter.
void order_marks(Codepoints& text) {
  const auto combining = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (combining(text[i]) == 0) continue;
    size_t end = i;
    while (end < text.size() && combining(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining(a) < combining(b); });
    i = end - 1;
  }
}

}  // namespace

bool is_whitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  const auto value = category(c);
  return in(value, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO) || is_mark(c) || value == UTF8PROC_CATEGORY_ND ||
         value == UTF8PROC_CATEGORY_NL || value == UTF8PROC_CATEGORY_PC || is_enclosed_letter(c) || c == 0x200C ||
         c == 0x200D;
}

bool is_numeric(char32_t c) {
  return in(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return in(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(char32_t c) {
  return in(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_other(char32_t c) {
  const auto value = category(c);
  return value == UTF8PROC_CATEGORY_CN || in(value, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

std::string normalize(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  if (form == NormalForm::kNfc ? is_plain_nfc(text) : is_ascii(text)) return std::string(text);
  Codepoints points = decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  order_marks(points);
  auto size = static_cast<utf8proc_ssize_t>(points.size());
  if (composed) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    size = utf8proc_normalize_utf32(points.data(), size, options);
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(points[static_cast<size_t>(i)]));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = utf8_next(text, i);
    if (c == 0x130) {
      out.append("i\xCC\x87");  // the only lower-case mapping of two characters
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

}  // namespace assay
