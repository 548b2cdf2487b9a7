#include <algorithm>

#include "server/text/template/access.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/format.h"
#include "server/text/template/methods.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

const std::string& bytes(const Value& self) { return self.as_text()->bytes; }

const std::string* optional_text(const Arguments& a, size_t i, const char* what) {
  return a.has(i) && !a.at(i).is_none() ? &text_argument(a, i, what) : nullptr;
}

Value make_list(Runtime& runtime, std::vector<std::string> parts) {
  std::vector<Value> items;
  int64_t size = 0;
  for (auto& part : parts) {
    size += static_cast<int64_t>(part.size() + sizeof(Value) + sizeof(Text));
    items.push_back(Value::string(std::move(part)));
  }
  runtime.budget.create(size);
  return Value::list(std::move(items));
}

template <int kSides>
Value strip(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::string(strip_text(runtime.budget, bytes(self), optional_text(a, 0, "strip arg"), kSides));
}

std::vector<std::string> split_space(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(character_at(text, end).code_point)) end += character_at(text, end).bytes;
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string> split_space_from_right(std::string_view text, int64_t most) {
  auto parts = split_space(text, -1);
  if (most < 0 || static_cast<int64_t>(parts.size()) <= most + 1) return parts;
  std::vector<std::string> tail(parts.end() - most, parts.end());
  std::string_view rest = strip_right(text);
  for (auto part = tail.rbegin(); part != tail.rend(); ++part) {
    rest.remove_suffix(part->size());
    rest = strip_right(rest);
  }
  tail.insert(tail.begin(), std::string(rest));
  return tail;
}

std::vector<std::string> split_by(const std::string& text, const std::string& separator, int64_t most) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = text.find(separator, begin);
    if (at == std::string::npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string> split_by_from_right(const std::string& text, const std::string& separator, int64_t most) {
  std::vector<std::string> parts;
  size_t end = text.size();
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    if (end < separator.size()) break;
    const size_t at = text.rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    parts.push_back(text.substr(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool kFromRight>
Value split(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string& text = bytes(self);
  const int64_t most = index_argument(a, 1, -1, "maxsplit");
  runtime.budget.create(static_cast<int64_t>(text.size()));
  const std::string* separator = optional_text(a, 0, "separator");
  if (!separator) return make_list(runtime, kFromRight ? split_space_from_right(text, most) : split_space(text, most));
  if (separator->empty()) fail("empty separator");
  return make_list(runtime,
                   kFromRight ? split_by_from_right(text, *separator, most) : split_by(text, *separator, most));
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments& a) {
  return make_list(runtime, split_lines(bytes(self), bool_argument(a, 0, false)));
}

template <bool kFromRight>
Value partition(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string &text = bytes(self), &separator = text_argument(a, 0, "separator");
  if (separator.empty()) fail("empty separator");
  runtime.budget.create(static_cast<int64_t>(text.size()));
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at != std::string::npos) {
    return Value::tuple({Value::string(text.substr(0, at)), Value::string(separator),
                         Value::string(text.substr(at + separator.size()))});
  }
  const Value whole = Value::string(text), empty = Value::string("");
  return kFromRight ? Value::tuple({empty, empty, whole}) : Value::tuple({whole, empty, empty});
}

// The part of the text between the character indices start and end, as byte offsets.
struct Window {
  std::vector<size_t> offsets;
  size_t begin, end;
  bool valid;  // start is not beyond the text
};

Window window(Runtime& runtime, const std::string& text, const Arguments& a) {
  runtime.budget.scan(text.size() * 4);
  Window w{character_offsets(text), 0, text.size(), true};
  const int64_t size = static_cast<int64_t>(w.offsets.size()) - 1;
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (!a.has(i) || a.at(i).is_none()) return otherwise;
    const int64_t index = to_index(a.at(i), "slice index");
    return index < 0 ? std::max<int64_t>(index + size, 0) : index;
  };
  const int64_t start = bound(1, 0), end = std::min(bound(2, size), size);
  w.valid = start <= size && start <= end;
  w.begin = w.offsets[static_cast<size_t>(std::min(start, size))];
  w.end = w.offsets[static_cast<size_t>(end)];
  return w;
}

template <bool kFromRight>
Int find_index(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string &text = bytes(self), &part = text_argument(a, 0, "the text to find");
  const Window w = window(runtime, text, a);
  if (!w.valid) return -1;
  const std::string_view view = std::string_view(text).substr(w.begin, w.end - w.begin);
  const size_t at = kFromRight ? view.rfind(part) : view.find(part);
  if (at == std::string_view::npos) return -1;
  return std::lower_bound(w.offsets.begin(), w.offsets.end(), w.begin + at) - w.offsets.begin();
}

template <bool kFromRight>
Value find(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::integer(find_index<kFromRight>(runtime, self, a));
}

template <bool kFromRight>
Value index(Runtime& runtime, const Value& self, const Arguments& a) {
  const Int at = find_index<kFromRight>(runtime, self, a);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string &text = bytes(self), &part = text_argument(a, 0, "the text to count");
  const Window w = window(runtime, text, a);
  if (!w.valid) return Value::integer(0);
  const std::string_view view = std::string_view(text).substr(w.begin, w.end - w.begin);
  if (part.empty()) return Value::integer(static_cast<Int>(character_count(view)) + 1);
  Int found = 0;
  for (size_t at = 0; (at = view.find(part, at)) != std::string_view::npos; at += part.size()) ++found;
  return Value::integer(found);
}

bool affix_matches(std::string_view view, const Value& affix, bool at_end) {
  const Text* text = affix.as_text();
  if (!text) fail("startswith and endswith take a str or a tuple of str, not " + type_name(affix));
  if (text->bytes.size() > view.size()) return false;
  return view.substr(at_end ? view.size() - text->bytes.size() : 0, text->bytes.size()) == text->bytes;
}

template <bool kAtEnd>
Value has_affix(Runtime& runtime, const Value& self, const Arguments& a) {
  std::string_view view = bytes(self);
  if (a.has(1)) {
    const Window w = window(runtime, bytes(self), a);
    if (!w.valid) return Value::boolean(false);
    view = view.substr(w.begin, w.end - w.begin);
  }
  require_defined(a.at(0));
  const Sequence* several = a.at(0).as_sequence();
  if (!several || several->kind != SequenceKind::kTuple) return Value::boolean(affix_matches(view, a.at(0), kAtEnd));
  return Value::boolean(std::any_of(several->items.begin(), several->items.end(),
                                    [&](const Value& affix) { return affix_matches(view, affix, kAtEnd); }));
}

template <bool kAtEnd>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string& affix = text_argument(a, 0, "the text to remove");
  const std::string& text = bytes(self);
  if (!affix_matches(text, a.at(0), kAtEnd)) return self;
  runtime.budget.create(static_cast<int64_t>(text.size()));
  return Value::string(text.substr(kAtEnd ? 0 : affix.size(), text.size() - affix.size()));
}

Value replace(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::string(replace_text(runtime.budget, bytes(self), text_argument(a, 0, "replace() argument 1"),
                                    text_argument(a, 1, "replace() argument 2"), index_argument(a, 2, -1, "count")));
}

Value join(Runtime& runtime, const Value& self, const Arguments& a) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(runtime, a.at(0))) {
    if (!item.as_text()) fail("sequence item: expected str instance, " + type_name(item) + " found");
    runtime.budget.create(static_cast<int64_t>(item.as_text()->bytes.size() + bytes(self).size()));
    if (!first) out += bytes(self);
    out += item.as_text()->bytes;
    first = false;
  }
  return Value::string(std::move(out));
}

// Python's center puts the odd space to the left when the width is odd.
std::string centered(Budget& budget, const std::string& text, int64_t width, const std::string& fill) {
  const int64_t missing = width - static_cast<int64_t>(character_count(text));
  if (missing <= 0) return text;
  const int64_t left = missing / 2 + (missing & width & 1);
  std::string padded = pad(budget, text, width - missing + left, fill, '>');
  return pad(budget, std::move(padded), width, fill, '<');
}

template <char kAlign>
Value justify(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string fill = a.has(1) ? text_argument(a, 1, "the fill character") : " ";
  if (character_count(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t width = index_argument(a, 0, 0, "width");
  if (kAlign == '^') return Value::string(centered(runtime.budget, bytes(self), width, fill));
  return Value::string(pad(runtime.budget, bytes(self), width, fill, kAlign));
}

Value zfill(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string& text = bytes(self);
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return Value::string(pad(runtime.budget, text, index_argument(a, 0, 0, "width"), "0", has_sign ? '=' : '>'));
}

Value expandtabs(Runtime& runtime, const Value& self, const Arguments& a) {
  const int64_t size = index_argument(a, 0, 8, "tabsize");
  std::string out;
  int64_t column = 0;
  for (const char c : bytes(self)) {
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      runtime.budget.create(spaces);
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += c;
      if ((c & 0xC0) != 0x80) column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  runtime.budget.create(static_cast<int64_t>(out.size()));
  return Value::string(std::move(out));
}

Value format(Runtime& runtime, const Value& self, const Arguments& a) {
  return Value::string(format_braces(runtime, bytes(self), a));
}

Value format_map(Runtime& runtime, const Value& self, const Arguments& a) {
  const Dict* dict = a.at(0).as_dict();
  if (!dict) fail("format_map() argument must be a mapping");
  Arguments named;
  for (const auto& [key, value] : dict->items) {
    if (key.as_text()) named.named.emplace_back(key.as_text()->bytes, value);
  }
  return Value::string(format_braces(runtime, bytes(self), named));
}

constexpr Builtin kMethods[] = {
    {"strip", "chars", 0, strip<3>},
    {"lstrip", "chars", 0, strip<1>},
    {"rstrip", "chars", 0, strip<2>},
    {"split", "sep maxsplit", 0, split<false>},
    {"rsplit", "sep maxsplit", 0, split<true>},
    {"splitlines", "keepends", 0, splitlines},
    {"partition", "sep", 1, partition<false>},
    {"rpartition", "sep", 1, partition<true>},
    {"find", "sub start end", 1, find<false>},
    {"rfind", "sub start end", 1, find<true>},
    {"index", "sub start end", 1, index<false>},
    {"rindex", "sub start end", 1, index<true>},
    {"count", "sub start end", 1, count},
    {"startswith", "prefix start end", 1, has_affix<false>},
    {"endswith", "suffix start end", 1, has_affix<true>},
    {"removeprefix", "prefix", 1, remove_affix<false>},
    {"removesuffix", "suffix", 1, remove_affix<true>},
    {"replace", "old new count", 2, replace},
    {"join", "iterable", 1, join},
    {"ljust", "width fillchar", 1, justify<'<'>},
    {"rjust", "width fillchar", 1, justify<'>'>},
    {"center", "width fillchar", 1, justify<'^'>},
    {"zfill", "width", 1, zfill},
    {"expandtabs", "tabsize", 0, expandtabs},
    {"format", "*", 0, format},
    {"format_map", "mapping", 1, format_map},
};

bool in_set(std::string_view character, const std::string& chars) {
  for (size_t pos = 0; pos < chars.size();) {
    const size_t size = character_at(chars, pos).bytes;
    if (std::string_view(chars).substr(pos, size) == character) return true;
    pos += size;
  }
  return false;
}

}  // namespace

std::span<const Builtin> string_methods() { return kMethods; }

std::string strip_text(Budget& budget, std::string_view text, const std::string* chars, int sides) {
  budget.create(static_cast<int64_t>(text.size()));
  if (!chars) {
    if (sides & 1) text = strip_left(text);
    if (sides & 2) text = strip_right(text);
    return std::string(text);
  }
  const auto offsets = character_offsets(text);
  size_t begin = 0, end = offsets.size() - 1;
  const auto strips = [&](size_t i) {
    budget.scan(chars->size());
    return in_set(text.substr(offsets[i], offsets[i + 1] - offsets[i]), *chars);
  };
  while ((sides & 1) && begin < end && strips(begin)) ++begin;
  while ((sides & 2) && begin < end && strips(end - 1)) --end;
  return std::string(text.substr(offsets[begin], offsets[end] - offsets[begin]));
}

std::string replace_text(Budget& budget, const std::string& text, const std::string& from, const std::string& to,
                         int64_t count) {
  budget.create(static_cast<int64_t>(text.size()));
  std::string out;
  size_t pos = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t at = from.empty() ? pos : text.find(from, pos);
    if (at == std::string::npos) break;
    budget.create(static_cast<int64_t>(to.size()));
    out.append(text, pos, at - pos);
    out += to;
    pos = at + from.size();
    if (!from.empty()) continue;
    if (pos == text.size()) break;
    const size_t size = character_at(text, pos).bytes;
    out.append(text, pos, size);
    pos += size;
  }
  return out.append(text, pos);
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    size_t next = pos + c.bytes;
    if (is_line_break(c.code_point) && !(c.bytes == 1 && (text[pos] & 0x80))) {
      if (c.code_point == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.emplace_back(text.substr(begin, (keep_ends ? next : pos) - begin));
      begin = next;
    }
    pos = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

}  // namespace assay::jinja
