// "...".format(...)
#include <algorithm>

#include "server/text/template/access.h"
#include "server/text/template/format.h"
#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string run(const std::string& format, int nesting) {
    if (nesting > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t pos = 0; pos < format.size();) {
      const char c = format[pos];
      if ((c == '{' || c == '}') && pos + 1 < format.size() && format[pos + 1] == c) {
        out += c;
        pos += 2;
      } else if (c == '{') {
        const size_t end = field_end(format, pos);
        out += field(format.substr(pos + 1, end - pos - 1), nesting);
        pos = end + 1;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        out += c;
        ++pos;
      }
    }
    runtime_.budget.create(static_cast<int64_t>(out.size()));
    return out;
  }

 private:
  static size_t field_end(const std::string& format, size_t open) {
    int depth = 0;
    for (size_t i = open; i < format.size(); ++i) {
      if (format[i] == '{') ++depth;
      if (format[i] == '}' && --depth == 0) return i;
    }
    fail("expected '}' before end of string");
  }

  std::string field(const std::string& text, int nesting) {
    const size_t end = std::min(text.find_first_of("!:"), text.size());
    const Value value = lookup(text.substr(0, end));
    char conversion = '\0';
    size_t pos = end;
    if (pos < text.size() && text[pos] == '!') {
      if (pos + 1 == text.size()) fail("end of string while looking for conversion specifier");
      conversion = text[pos + 1];
      pos += 2;
      if (pos < text.size() && text[pos] != ':') fail("expected ':' after conversion specifier");
    }
    const std::string spec = pos < text.size() ? run(text.substr(pos + 1), nesting + 1) : "";
    return format_value(runtime_.budget, converted(value, conversion), spec);
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == '\0') return value;
    if (conversion == 's') return Value::string(to_text(runtime_.budget, value));
    if (conversion == 'r' || conversion == 'a') return Value::string(repr(runtime_.budget, value));
    fail(std::string("Unknown conversion specifier ") + conversion);
  }

  static bool all_digits(const std::string& text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  Value first_value(const std::string& name) {
    if (name.empty()) return positional(next_++);
    if (all_digits(name)) return positional(static_cast<size_t>(std::stoul(name)));
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    fail("KeyError: " + quote(name));
  }

  Value positional(size_t index) {
    if (index >= arguments_.positional.size()) {
      fail("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
    }
    return arguments_.positional[index];
  }

  // name.attribute[item]...
  Value lookup(const std::string& path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first_value(path.substr(0, end));
    while (end < path.size()) {
      runtime_.budget.step();
      const bool item = path[end] == '[';
      const size_t begin = end + 1;
      end = item ? path.find(']', begin) : std::min(path.find_first_of(".[", begin), path.size());
      if (end == std::string::npos) fail("Missing ']' in format string");
      const std::string name = path.substr(begin, end - begin);
      if (!item) {
        value = get_attribute(runtime_, value, name);
      } else {
        value = get_item(runtime_, value, all_digits(name) ? Value::integer(std::stol(name)) : Value::string(name));
        ++end;
      }
    }
    return value;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

std::string format_braces(Runtime& runtime, const std::string& format, const Arguments& arguments) {
  runtime.budget.scan(format.size());
  return BraceFormatter(runtime, arguments).run(format, 0);
}

}  // namespace assay::jinja
