#include <algorithm>
#include <cmath>

#include "server/text/template/filters.h"
#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    const DepthGuard guard(budget_);
    const size_t before = out_.size();
    if (const Text* text = value.as_text()) {
      string(text->bytes);
    } else if (const Sequence* sequence = value.as_sequence(); sequence && sequence->kind <= SequenceKind::kTuple) {
      list(sequence->items);
    } else if (const Dict* dict = value.as_dict()) {
      object(*dict);
    } else {
      out_ += scalar(value);
    }
    budget_.create(static_cast<int64_t>(out_.size() - before) / 8 + 8);
    budget_.output(out_.size());
  }

 private:
  // Numbers, true, false, null; also as keys.
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* b = value.as_bool()) return *b ? "true" : "false";
    if (const Int* i = value.as_int()) return int_repr(*i);
    if (const double* d = value.as_float()) {
      if (std::isnan(*d)) return "NaN";
      if (std::isinf(*d)) return *d > 0 ? "Infinity" : "-Infinity";
      return float_repr(*d);
    }
    fail("Object of type " + type_name(value) + " is not JSON serializable");
  }

  void unicode_escape(uint32_t unit) {
    static constexpr char kHex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[(unit >> shift) & 15];
  }

  void escape(std::string_view bytes, uint32_t code_point) {
    static constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const size_t special = code_point < 0x80 ? kSpecial.find(static_cast<char>(code_point)) : std::string_view::npos;
    if (special != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[special];
    } else if (code_point < 0x20 || (style_.ascii_only && code_point >= 0x7F && code_point < 0x10000)) {
      unicode_escape(code_point);
    } else if (style_.ascii_only && code_point >= 0x10000) {
      unicode_escape(0xD800 + ((code_point - 0x10000) >> 10));
      unicode_escape(0xDC00 + ((code_point - 0x10000) & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  void string(std::string_view text) {
    budget_.create(static_cast<int64_t>(text.size()));
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      const Character c = character_at(text, pos);
      escape(text.substr(pos, c.bytes), static_cast<uint32_t>(c.code_point));
      pos += c.bytes;
    }
    out_ += '"';
  }

  void new_line() {
    if (!style_.pretty) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
  }

  void separate(bool first) {
    if (!first) out_ += style_.item_separator;
    new_line();
  }

  void list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      write(items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void key(const Value& value) {
    if (const Text* text = value.as_text()) return string(text->bytes);
    if (!value.is_none() && !value.real()) {
      fail("keys must be str, int, float, bool or None, not " + type_name(value));
    }
    string(scalar(value));
  }

  std::vector<uint32_t> key_order(const Dict& dict) const {
    std::vector<uint32_t> order(dict.items.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return less(budget_, dict.items[a].first, dict.items[b].first);
      });
    }
    return order;
  }

  void object(const Dict& dict) {
    if (dict.items.empty()) {
      out_ += "{}";
      return;
    }
    out_ += '{';
    ++level_;
    bool first = true;
    for (const uint32_t i : key_order(dict)) {
      separate(first);
      first = false;
      key(dict.items[i].first);
      out_ += style_.key_separator;
      write(dict.items[i].second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value);
  return writer.take();
}

}  // namespace assay::jinja
