#include <algorithm>

#include "server/text/template/builtin_arguments.h"
#include "server/text/template/methods.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

const std::string& bytes(const Value& self) { return self.as_text()->bytes; }

template <std::string (*kChange)(std::string_view)>
Value changed(Runtime& runtime, const Value& self, const Arguments&) {
  runtime.budget.create(static_cast<int64_t>(bytes(self).size()) * 2);
  return Value::string(kChange(bytes(self)));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    const std::string_view one = text.substr(pos, c.bytes);
    out += is_upper(c.code_point) ? to_lower(one) : is_lower(c.code_point) ? to_upper(one) : std::string(one);
    pos += c.bytes;
  }
  return out;
}

// Every character is of the class, and there is one.
template <bool (*kIsOfClass)(int32_t)>
Value all_of(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string& text = bytes(self);
  runtime.budget.scan(text.size());
  bool all = !text.empty();
  for (size_t pos = 0; all && pos < text.size(); pos += character_at(text, pos).bytes) {
    all = kIsOfClass(character_at(text, pos).code_point);
  }
  return Value::boolean(all);
}

// There is a character of the one case, and none of the other.
template <bool (*kIsWanted)(int32_t), bool (*kIsOther)(int32_t)>
Value cased(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string& text = bytes(self);
  runtime.budget.scan(text.size());
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    if (kIsOther(c.code_point) || is_title(c.code_point)) return Value::boolean(false);
    found = found || kIsWanted(c.code_point);
    pos += c.bytes;
  }
  return Value::boolean(found);
}

Value istitle(Runtime& runtime, const Value& self, const Arguments&) {
  const std::string& text = bytes(self);
  runtime.budget.scan(text.size());
  bool found = false, after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const Character c = character_at(text, pos);
    const bool capital = is_upper(c.code_point) || is_title(c.code_point), small = is_lower(c.code_point);
    if ((capital && after_cased) || (small && !after_cased)) return Value::boolean(false);
    found = found || capital;
    after_cased = capital || small;
    pos += c.bytes;
  }
  return Value::boolean(found);
}

Value isascii(Runtime&, const Value& self, const Arguments&) { return Value::boolean(self.as_text()->ascii); }

Value isidentifier(Runtime&, const Value& self, const Arguments&) {
  const std::string& text = bytes(self);
  bool ok = !text.empty();
  for (size_t pos = 0; ok && pos < text.size(); pos += character_at(text, pos).bytes) {
    const int32_t c = character_at(text, pos).code_point;
    ok = c == '_' || (pos == 0 ? is_alpha(c) : is_alphanumeric(c));
  }
  return Value::boolean(ok);
}

constexpr Builtin kMethods[] = {
    {"upper", "", 0, changed<to_upper>},
    {"lower", "", 0, changed<to_lower>},
    {"casefold", "", 0, changed<to_lower>},
    {"title", "", 0, changed<to_title>},
    {"capitalize", "", 0, changed<to_capitalized>},
    {"swapcase", "", 0, changed<swap_case>},
    {"isspace", "", 0, all_of<is_space>},
    {"isalpha", "", 0, all_of<is_alpha>},
    {"isdigit", "", 0, all_of<is_digit>},
    {"isdecimal", "", 0, all_of<is_digit>},
    {"isnumeric", "", 0, all_of<is_digit>},
    {"isalnum", "", 0, all_of<is_alphanumeric>},
    {"isupper", "", 0, cased<is_upper, is_lower>},
    {"islower", "", 0, cased<is_lower, is_upper>},
    {"istitle", "", 0, istitle},
    {"isascii", "", 0, isascii},
    {"isidentifier", "", 0, isidentifier},
};

}  // namespace

std::span<const Builtin> character_methods() { return kMethods; }

}  // namespace assay::jinja
