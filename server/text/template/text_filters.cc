#include <algorithm>

#include "server/text/template/access.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/filters.h"
#include "server/text/template/format.h"
#include "server/text/template/methods.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

// The input as text, as most filters take it.
std::string soft_text(Runtime& runtime, const Value& self) { return to_text(runtime.budget, self); }

template <std::string (*kChange)(std::string_view)>
Value changed(Runtime& runtime, const Value& self, const Arguments&) {
  return Value::string(kChange(soft_text(runtime, self)));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

bool begins_word(char c) { return std::string_view("-({[<").find(c) != std::string_view::npos; }

// Jinja's title: words begin after white space and after - ( { [ <.
std::string title(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = character_at(word, 0).bytes;
    out += to_upper(std::string_view(word).substr(0, first)) + to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    const std::string_view one = text.substr(pos, c.bytes);
    if (is_space(c.code_point) || (c.bytes == 1 && begins_word(one[0]))) {
      flush();
      out += one;
    } else {
      word += one;
    }
    pos += c.bytes;
  }
  flush();
  return out;
}

Value trim(Runtime& runtime, const Value& self, const Arguments& a) {
  const std::string* chars = a.has(0) && !a.at(0).is_none() ? &text_argument(a, 0, "chars") : nullptr;
  return Value::string(strip_text(runtime.budget, soft_text(runtime, self), chars, 3));
}

Value replace(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool all = !a.has(2) || a.at(2).is_none();
  return Value::string(replace_text(runtime.budget, soft_text(runtime, self), soft_text(runtime, a.at(0)),
                                    soft_text(runtime, a.at(1)), all ? -1 : to_index(a.at(2), "count")));
}

Value center(Runtime& runtime, const Value& self, const Arguments& a) {
  Arguments width;
  width.positional.push_back(a.has(0) ? a.at(0) : Value::integer(80));
  const Value text = Value::string(soft_text(runtime, self));
  return invoke(runtime, *find_method(text, "center"), text, std::move(width));
}

Value format(Runtime& runtime, const Value& self, const Arguments& a) {
  if (!a.positional.empty() && !a.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : a.named) named.emplace_back(Value::string(name), value);
  const Value values = named.empty() ? Value::tuple(a.positional) : Value::dict(runtime.budget, std::move(named));
  return Value::string(format_percent(runtime.budget, soft_text(runtime, self), values));
}

// Lines of text + "\n", so that a final line break makes a last empty line.
std::vector<std::string> lines_to_indent(Runtime& runtime, const Value& self) {
  require_defined(self);
  if (!self.as_text()) fail("unsupported operand type(s) for +=: '" + type_name(self) + "' and 'str'");
  runtime.budget.create(static_cast<int64_t>(self.as_text()->bytes.size()) * 2);
  return split_lines(self.as_text()->bytes + "\n", false);
}

Value indent(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool by_text = a.has(0) && a.at(0).as_text();
  const int64_t width = by_text ? 0 : std::max<int64_t>(index_argument(a, 0, 4, "width"), 0);
  runtime.budget.create(width);
  const std::string indention = by_text ? a.at(0).as_text()->bytes : std::string(static_cast<size_t>(width), ' ');
  const bool first = bool_argument(a, 1, false), blank = bool_argument(a, 2, false);
  std::string out;
  const auto lines = lines_to_indent(runtime, self);
  for (size_t i = 0; i < lines.size(); ++i) {
    runtime.budget.create(static_cast<int64_t>(indention.size()) + 1);
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += indention;
    out += lines[i];
  }
  return Value::string(std::move(out));
}

Value truncate(Runtime& runtime, const Value& self, const Arguments& a) {
  require_defined(self);
  const std::string end = a.has(2) ? text_argument(a, 2, "end") : "...";
  const int64_t most = index_argument(a, 0, 255, "length"),
                leeway = a.has(3) && !a.at(3).is_none() ? to_index(a.at(3), "leeway") : 5;
  const int64_t end_size = static_cast<int64_t>(character_count(end));
  if (most < end_size) fail("expected length >= " + std::to_string(end_size) + ", got " + std::to_string(most));
  if (leeway < 0) fail("expected leeway >= 0, got " + std::to_string(leeway));
  const auto size = length(runtime, self);
  if (!size) fail("object of type '" + type_name(self) + "' has no len()");
  if (*size - leeway <= most) return self;
  if (!self.as_text()) fail("'" + type_name(self) + "' object cannot be truncated");
  const std::string& text = self.as_text()->bytes;
  const auto offsets = character_offsets(text);
  runtime.budget.create(static_cast<int64_t>(text.size()));
  std::string cut = text.substr(0, offsets[static_cast<size_t>(most - end_size)]);
  if (!bool_argument(a, 1, false)) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return Value::string(cut + end);
}

std::string url_quoted(Budget& budget, const std::string& text, bool for_query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  budget.create(static_cast<int64_t>(text.size()) * 3);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) || std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Value urlencode(Runtime& runtime, const Value& self, const Arguments&) {
  Budget& budget = runtime.budget;
  if (self.as_text() || !is_iterable(self)) return Value::string(url_quoted(budget, soft_text(runtime, self), false));
  const Value pairs = self.as_dict() ? dict_view(runtime, *self.as_dict(), SequenceKind::kDictItems) : self;
  std::string out;
  for (const Value& pair : iterate(runtime, pairs)) {
    const auto parts = iterate(runtime, pair);
    if (parts.size() != 2) fail("urlencode needs pairs");
    if (!out.empty()) out += '&';
    out += url_quoted(budget, soft_text(runtime, parts[0]), true) + "=" +
           url_quoted(budget, soft_text(runtime, parts[1]), true);
  }
  return Value::string(std::move(out));
}

Value wordcount(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string text = soft_text(runtime, self);
  Int words = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size(); pos += character_at(text, pos).bytes) {
    const int32_t c = character_at(text, pos).code_point;
    const bool part = c == '_' || is_alphanumeric(c);
    words += part && !in_word;
    in_word = part;
  }
  return Value::integer(words);
}

constexpr Builtin kFilters[] = {
    {"capitalize", "", 0, changed<to_capitalized>},
    {"center", "width", 0, center},
    {"e", "", 0, changed<escaped>},
    {"escape", "", 0, changed<escaped>},
    {"forceescape", "", 0, changed<escaped>},
    {"format", "*", 0, format},
    {"indent", "width first blank", 0, indent},
    {"lower", "", 0, changed<to_lower>},
    {"replace", "old new count", 2, replace},
    {"title", "", 0, changed<title>},
    {"trim", "chars", 0, trim},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"upper", "", 0, changed<to_upper>},
    {"urlencode", "", 0, urlencode},
    {"wordcount", "", 0, wordcount},
};

}  // namespace

std::span<const Builtin> text_filters() { return kFilters; }

}  // namespace assay::jinja
