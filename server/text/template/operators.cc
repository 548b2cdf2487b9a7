#include "server/text/template/operators.h"

#include <algorithm>

#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

bool same_items(Budget& budget, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  DepthGuard guard(budget);
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equals(budget, x, y); });
}

bool same_pairs(Budget& budget, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.items.size() != b.items.size()) return false;
  DepthGuard guard(budget);
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& pair) {
    const Value* other = b.find(budget, pair.first);
    return other && equals(budget, pair.second, *other);
  });
}

[[noreturn]] void not_ordered(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail("'" + std::string(op) + "' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) +
       "'");
}

template <class T>
bool ordered(std::string_view op, const T& a, const T& b) {
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  return a >= b;
}

bool order_sequences(Budget& budget, std::string_view op, const Sequence& a, const Sequence& b) {
  DepthGuard guard(budget);
  const size_t common = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(budget, a.items[i], b.items[i])) return compare(budget, op, a.items[i], b.items[i]);
  }
  return ordered(op, a.items.size(), b.items.size());
}

bool order(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  budget.step();
  const auto x = a.integral(), y = b.integral();
  if (x && y) return ordered(op, *x, *y);
  if (a.real() && b.real()) return ordered(op, *a.real(), *b.real());
  if (a.as_text() && b.as_text()) {
    budget.scan(std::min(a.as_text()->bytes.size(), b.as_text()->bytes.size()));
    return ordered(op, a.as_text()->bytes, b.as_text()->bytes);
  }
  const Sequence *s = a.as_sequence(), *t = b.as_sequence();
  const bool both_ordered = s && t && s->kind == t->kind && s->kind <= SequenceKind::kTuple;
  if (!both_ordered) not_ordered(op, a, b);
  return order_sequences(budget, op, *s, *t);
}

std::string joined_repr(Budget& budget, const std::vector<Value>& items, const char* open, const char* close) {
  std::string out = open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += ", ";
    out += repr(budget, items[i]);
  }
  return out + close;
}

std::string range_repr(const std::vector<Value>& items) {
  if (items.empty()) return "range(0, 0)";
  const Int first = *items[0].as_int();
  const Int step = items.size() > 1 ? *items[1].as_int() - first : 1;
  const Int stop = *items.back().as_int() + step;
  std::string out = "range(" + int_repr(first) + ", " + int_repr(stop);
  if (step != 1) out += ", " + int_repr(step);
  return out + ")";
}

std::string sequence_repr(Budget& budget, const Sequence& sequence) {
  switch (sequence.kind) {
    case SequenceKind::kTuple:
      return joined_repr(budget, sequence.items, "(", sequence.items.size() == 1 ? ",)" : ")");
    case SequenceKind::kRange:
      return range_repr(sequence.items);
    case SequenceKind::kDictKeys:
      return joined_repr(budget, sequence.items, "dict_keys([", "])");
    case SequenceKind::kDictValues:
      return joined_repr(budget, sequence.items, "dict_values([", "])");
    case SequenceKind::kDictItems:
      return joined_repr(budget, sequence.items, "dict_items([", "])");
    case SequenceKind::kList:
      break;
  }
  return joined_repr(budget, sequence.items, "[", "]");
}

std::string dict_repr(Budget& budget, const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.items) {
    if (out.size() > 1) out += ", ";
    out += repr(budget, key) + ": " + repr(budget, value);
  }
  return out + "}";
}

std::string repr_of_any(Budget& budget, const Value& value) {
  if (value.is_none()) return "None";
  if (const bool* b = value.as_bool()) return *b ? "True" : "False";
  if (const Int* i = value.as_int()) return int_repr(*i);
  if (const double* d = value.as_float()) return float_repr(*d);
  if (const Text* text = value.as_text()) return quote(text->bytes);
  if (value.as_undefined()) return "Undefined";
  if (const Sequence* sequence = value.as_sequence()) return sequence_repr(budget, *sequence);
  if (const Dict* dict = value.as_dict()) return dict_repr(budget, *dict);
  return value.as_object()->repr(budget);
}

}  // namespace

bool truthy(const Value& value) {
  if (value.is_none() || value.as_undefined()) return false;
  if (const auto i = value.integral()) return *i != 0;
  if (const double* d = value.as_float()) return *d != 0;
  if (const Text* text = value.as_text()) return !text->bytes.empty();
  if (const Sequence* sequence = value.as_sequence()) return !sequence->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->items.empty();
  return true;
}

bool equals(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  const auto x = a.integral(), y = b.integral();
  if (x && y) return *x == *y;
  if (a.real() && b.real()) return *a.real() == *b.real();
  if (a.as_text() && b.as_text()) {
    budget.scan(std::min(a.as_text()->bytes.size(), b.as_text()->bytes.size()));
    return a.as_text()->bytes == b.as_text()->bytes;
  }
  if (a.as_sequence() && b.as_sequence()) return same_items(budget, *a.as_sequence(), *b.as_sequence());
  if (a.as_dict() && b.as_dict()) return same_pairs(budget, *a.as_dict(), *b.as_dict());
  if (a.as_undefined() && b.as_undefined()) return true;
  return a.same_as(b);
}

bool compare(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equals(budget, a, b);
  if (op == "!=") return !equals(budget, a, b);
  return order(budget, op, a, b);
}

bool less(Budget& budget, const Value& a, const Value& b) { return order(budget, "<", a, b); }

bool contains(Budget& budget, const Value& container, const Value& item) {
  if (const Text* text = container.as_text()) {
    const Text* part = item.as_text();
    if (!part) fail("'in <string>' requires string as left operand, not " + type_name(item));
    budget.scan(text->bytes.size());
    return text->bytes.find(part->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    if (!is_hashable(item)) fail("unhashable type: '" + type_name(item) + "'");
    return dict->find(budget, item) != nullptr;
  }
  const auto found = [&](const Value& other) { return equals(budget, other, item); };
  if (const Sequence* sequence = container.as_sequence()) {
    return std::any_of(sequence->items.begin(), sequence->items.end(), found);
  }
  if (Iterator* iterator = container.as<Iterator>()) {
    while (const auto next = iterator->next()) {
      if (found(*next)) return true;
    }
    return false;
  }
  if (container.as_undefined()) return false;
  fail("argument of type '" + type_name(container) + "' is not iterable");
}

std::string to_text(Budget& budget, const Value& value) {
  if (const Text* text = value.as_text()) {
    budget.create(static_cast<int64_t>(text->bytes.size()));
    return text->bytes;
  }
  if (value.as_undefined()) return "";
  return repr(budget, value);
}

std::string_view text_view(Budget& budget, const Value& value, std::string& storage) {
  if (const Text* text = value.as_text()) return text->bytes;
  storage = to_text(budget, value);
  return storage;
}

std::string repr(Budget& budget, const Value& value) {
  DepthGuard guard(budget);
  std::string text = repr_of_any(budget, value);
  budget.create(static_cast<int64_t>(text.size()) + 1);
  return text;
}

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.as_undefined()) fail(undefined->message);
}

int64_t to_index(const Value& value, const char* what) {
  require_defined(value);
  const auto i = value.integral();
  if (!i) fail(std::string(what) + " must be an integer, not '" + type_name(value) + "'");
  if (*i > INT64_MAX || *i < INT64_MIN) fail(std::string(what) + " is too large");
  return static_cast<int64_t>(*i);
}

}  // namespace assay::jinja
