// "..." % values
#include <cmath>

#include "server/text/template/format.h"
#include "server/text/template/operators.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

struct Conversion {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, const std::string& format, const Value& values)
      : budget_(budget), format_(format), values_(values) {
    const Sequence* sequence = values.as_sequence();
    if (sequence && sequence->kind == SequenceKind::kTuple) tuple_ = sequence;
  }

  std::string run() {
    std::string out;
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      out.append(format_, pos_, percent - pos_);
      pos_ = percent;
      if (pos_ < format_.size()) out += conversion();
      budget_.output(out.size());
    }
    const bool all_used = tuple_ ? next_ == tuple_->items.size() : next_ > 0 || values_.as_dict() != nullptr;
    if (!all_used && !(values_.as_sequence() && !tuple_)) {
      fail("not all arguments converted during string formatting");
    }
    budget_.create(static_cast<int64_t>(out.size()));
    return out;
  }

 private:
  char peek() const {
    if (pos_ >= format_.size()) fail("incomplete format");
    return format_[pos_];
  }

  Value next_value() {
    if (tuple_ && next_ < tuple_->items.size()) return tuple_->items[next_++];
    if (!tuple_ && next_ == 0) return ++next_, values_;
    fail("not enough arguments for format string");
  }

  int64_t number() {
    int64_t value = 0;
    if (peek() == '*') {
      ++pos_;
      return to_index(next_value(), "* in a format");
    }
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (format_[pos_++] - '0');
      if (value > INT32_MAX) fail("width too big");
    }
    return value;
  }

  std::string mapping_key() {
    const size_t close = format_.find(')', pos_);
    if (close == std::string::npos) fail("incomplete format key");
    std::string key = format_.substr(pos_ + 1, close - pos_ - 1);
    pos_ = close + 1;
    return key;
  }

  Value mapped_value(const std::string& key) {
    const Dict* dict = values_.as_dict();
    if (!dict) fail("format requires a mapping");
    const Value* found = dict->find(key);
    if (!found) fail("KeyError: " + quote(key));
    return *found;
  }

  Conversion parse_conversion() {
    Conversion c;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-': c.left = true; break;
        case '+': c.plus = true; break;
        case ' ': c.space = true; break;
        case '0': c.zero = true; break;
        case '#': c.alternate = true; break;
        default: more = false;
      }
      if (more) ++pos_;
    }
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (peek() == '.') {
      ++pos_;
      c.precision = static_cast<int>(std::min<int64_t>(std::max<int64_t>(number(), 0), INT32_MAX));
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++pos_;
    c.type = peek();
    ++pos_;
    return c;
  }

  std::string conversion() {
    ++pos_;
    std::optional<Value> mapped;
    if (peek() == '(') mapped = mapped_value(mapping_key());
    const Conversion c = parse_conversion();
    if (c.type == '%') return "%";
    const Value value = mapped ? *mapped : next_value();
    if (std::string_view("sra").find(c.type) != std::string_view::npos) return text(c, value);
    if (c.type == 'c') return character(c, value);
    return number_text(c, value);
  }

  std::string text(const Conversion& c, const Value& value) {
    std::string out = c.type == 's' ? to_text(budget_, value) : repr(budget_, value);
    if (c.precision >= 0) {
      const auto offsets = character_offsets(out);
      out.resize(offsets[std::min(static_cast<size_t>(c.precision), offsets.size() - 1)]);
    }
    return pad(budget_, std::move(out), c.width, " ", c.left ? '<' : '>');
  }

  std::string character(const Conversion& c, const Value& value) {
    std::string out;
    if (const auto code = value.integral()) {
      if (*code < 0 || *code > 0x10FFFF) fail("%c arg not in range(0x110000)");
      append_utf8(out, static_cast<uint32_t>(*code));
    } else if (value.as_text() && character_count(value.as_text()->bytes) == 1) {
      out = value.as_text()->bytes;
    } else {
      fail("%c requires int or char");
    }
    return pad(budget_, std::move(out), c.width, " ", c.left ? '<' : '>');
  }

  std::string number_text(const Conversion& c, const Value& value) {
    std::string out;
    if (std::string_view("eEfFgG").find(c.type) != std::string_view::npos) {
      require_defined(value);
      if (!value.real()) fail("must be real number, not " + type_name(value));
      out = format_float(*value.real(), c.precision < 0 ? 6 : c.precision, c.type, c.alternate);
    } else if (std::string_view("diuxXo").find(c.type) != std::string_view::npos) {
      out = integer_text(c, value);
    } else {
      fail(std::string("unsupported format character '") + c.type + "'");
    }
    if (out[0] != '-' && (c.plus || c.space)) out.insert(0, 1, c.plus ? '+' : ' ');
    if (c.left) return pad(budget_, std::move(out), c.width, " ", '<');
    return pad(budget_, std::move(out), c.width, c.zero ? "0" : " ", c.zero ? '=' : '>');
  }

  std::string integer_text(const Conversion& c, const Value& value) {
    const bool decimal = c.type == 'd' || c.type == 'i' || c.type == 'u';
    Int integer = 0;
    if (const auto i = value.integral()) {
      integer = *i;
    } else if (decimal && value.as_float() && std::fabs(*value.as_float()) < 1e38) {
      integer = static_cast<Int>(*value.as_float());
    } else {
      require_defined(value);
      fail(std::string("%") + c.type + " format: " + (decimal ? "a real number" : "an integer") + " is required, not " +
           type_name(value));
    }
    std::string digits = digits_of(integer, decimal ? 10 : c.type == 'o' ? 8 : 16, c.type == 'X');
    const size_t sign = digits[0] == '-';
    if (c.precision > 1000) fail("precision is too large");
    while (static_cast<int>(digits.size() - sign) < c.precision) digits.insert(sign, 1, '0');
    if (c.alternate && !decimal) digits.insert(sign, std::string("0") + c.type);
    return digits;
  }

  Budget& budget_;
  const std::string& format_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t pos_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string format_percent(Budget& budget, const std::string& format, const Value& values) {
  budget.scan(format.size());
  return PercentFormatter(budget, format, values).run();
}

}  // namespace assay::jinja
