#include "server/text/template/value.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

int key_class(const Value& value) {
  if (value.is_none()) return 0;
  if (value.integral() || value.as_float()) return 1;
  if (value.as_text()) return 2;
  if (value.as_sequence()) return 3;
  if (value.as_undefined()) return 4;
  return 5;
}

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int compare_numbers(const Value& a, const Value& b) {
  const auto x = a.integral(), y = b.integral();
  return x && y ? three_way(*x, *y) : three_way(*a.real(), *b.real());
}

int compare_sequences(Budget& budget, const Sequence& a, const Sequence& b) {
  DepthGuard guard(budget);
  const size_t common = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < common; ++i) {
    if (const int order = compare_keys(budget, a.items[i], b.items[i])) return order;
  }
  return three_way(a.items.size(), b.items.size());
}

// Sorts by key; of equal keys the earlier pair comes first.
std::vector<uint32_t> sorted_order(Budget& budget, const std::vector<std::pair<Value, Value>>& items) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return compare_keys(budget, items[a].first, items[b].first) < 0;
  });
  return order;
}

// Moves the value of a later equal key to the first pair and drops the later one. True when some were dropped.
bool merge_equal_keys(Budget& budget, Dict& dict) {
  std::vector<bool> dropped(dict.items.size());
  bool any = false;
  for (size_t i = 1, first = 0; i < dict.order.size(); ++i) {
    const uint32_t kept = dict.order[first], later = dict.order[i];
    if (compare_keys(budget, dict.items[kept].first, dict.items[later].first) != 0) {
      first = i;
      continue;
    }
    dict.items[kept].second = dict.items[later].second;
    dropped[later] = any = true;
  }
  if (!any) return false;
  std::vector<std::pair<Value, Value>> kept;
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(dict.items[i]));
  }
  dict.items = std::move(kept);
  return true;
}

}  // namespace

Value Value::string(std::string bytes) {
  const bool ascii = is_ascii(bytes);
  return Value(Variant(TextPtr(std::make_shared<Text>(Text{std::move(bytes), ascii}))));
}

Value Value::undefined(std::string message) {
  return Value(Variant(UndefinedPtr(std::make_shared<Undefined>(Undefined{std::move(message)}))));
}

Value Value::sequence(SequenceKind kind, std::vector<Value> items) {
  const int depth = checked_depth(items);
  return Value(Variant(SequencePtr(std::make_shared<Sequence>(Sequence{kind, std::move(items), depth, false}))));
}

Value Value::group(Value grouper, Value members) {
  std::vector<Value> items{std::move(grouper), std::move(members)};
  const int depth = checked_depth(items);
  return Value(
      Variant(SequencePtr(std::make_shared<Sequence>(Sequence{SequenceKind::kTuple, std::move(items), depth, true}))));
}

Value Value::dict(Budget& budget, std::vector<std::pair<Value, Value>> items) {
  int deepest = 0;
  for (const auto& [key, value] : items) {
    if (!is_hashable(key)) fail("unhashable type: '" + jinja::type_name(key) + "'");
    deepest = std::max({deepest, key.depth(), value.depth()});
  }
  budget.create(static_cast<int64_t>(items.size() * (2 * sizeof(Value) + 4)));
  auto made = std::make_shared<Dict>();
  made->depth = checked_depth(deepest);
  made->items = std::move(items);
  made->order = sorted_order(budget, made->items);
  if (merge_equal_keys(budget, *made)) made->order = sorted_order(budget, made->items);
  return Value(Variant(DictPtr(std::move(made))));
}

std::optional<Int> Value::integral() const {
  if (const bool* b = as_bool()) return Int{*b};
  if (const Int* i = as_int()) return *i;
  return std::nullopt;
}

std::optional<double> Value::real() const {
  if (const double* d = as_float()) return *d;
  if (const auto i = integral()) return static_cast<double>(*i);
  return std::nullopt;
}

int Value::depth() const {
  if (const auto* sequence = as_sequence()) return sequence->depth;
  if (const auto* dict = as_dict()) return dict->depth;
  if (const auto* object = as_object()) return object->depth();
  return 0;
}

bool Value::same_as(const Value& other) const {
  if (variant_.index() != other.variant_.index()) return false;
  if (as_sequence() || as_dict() || as_object() || as_undefined() || as_text()) {
    if (as_text()) return as_text()->bytes == other.as_text()->bytes;  // short strings are shared in Python
    return as_sequence() == other.as_sequence() && as_dict() == other.as_dict() && as_object() == other.as_object() &&
           as_undefined() == other.as_undefined();
  }
  return variant_ == other.variant_;
}

const Value* Dict::find(Budget& budget, const Value& key) const {
  const auto at = std::lower_bound(order.begin(), order.end(), key, [&](uint32_t i, const Value& wanted) {
    return compare_keys(budget, items[i].first, wanted) < 0;
  });
  if (at == order.end() || compare_keys(budget, items[*at].first, key) != 0) return nullptr;
  return &items[*at].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = std::lower_bound(order.begin(), order.end(), key, [&](uint32_t i, std::string_view wanted) {
    const Text* text = items[i].first.as_text();
    return text ? std::string_view(text->bytes) < wanted : key_class(items[i].first) < 2;
  });
  if (at == order.end()) return nullptr;
  const Text* text = items[*at].first.as_text();
  return text && text->bytes == key ? &items[*at].second : nullptr;
}

Object::Object(int depth) : depth_(depth) {}

std::string Object::repr(Budget&) const { return "<" + type_name() + " object>"; }

std::optional<Value> Object::attribute(Runtime&, const std::string&) { return std::nullopt; }

Value Object::call(Runtime&, Arguments) { fail("'" + type_name() + "' object is not callable"); }

Iterator::Iterator(std::vector<Value> items) : Object(checked_depth(items)), items_(std::move(items)) {}

std::optional<Value> Iterator::next() {
  if (next_ == items_.size()) return std::nullopt;
  return items_[next_++];
}

std::vector<Value> Iterator::take_rest() {
  std::vector<Value> rest(items_.begin() + static_cast<int64_t>(next_), items_.end());
  next_ = items_.size();
  return rest;
}

Value make_iterator(std::vector<Value> items) { return Value::object(std::make_shared<Iterator>(std::move(items))); }

int checked_depth(int deepest_item) {
  if (deepest_item < kMaxValueDepth) return deepest_item + 1;
  throw RenderError(ErrorKind::kLimit, "lists and objects are nested deeper than " + std::to_string(kMaxValueDepth));
}

int checked_depth(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return checked_depth(deepest);
}

std::string type_name(const Value& value) {
  static const char* const kSequenceNames[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  if (value.is_none()) return "NoneType";
  if (value.as_bool()) return "bool";
  if (value.as_int()) return "int";
  if (value.as_float()) return "float";
  if (value.as_text()) return "str";
  if (value.as_undefined()) return "Undefined";
  if (value.as_dict()) return "dict";
  if (const auto* sequence = value.as_sequence()) return kSequenceNames[static_cast<int>(sequence->kind)];
  return value.as_object()->type_name();
}

bool is_hashable(const Value& value) {
  if (value.as_dict()) return false;
  const auto* sequence = value.as_sequence();
  if (!sequence) return true;
  if (sequence->kind != SequenceKind::kTuple) return sequence->kind == SequenceKind::kRange;
  return std::all_of(sequence->items.begin(), sequence->items.end(), is_hashable);
}

int compare_keys(Budget& budget, const Value& a, const Value& b) {
  budget.step();
  if (const int order = three_way(key_class(a), key_class(b))) return order;
  switch (key_class(a)) {
    case 1:
      return compare_numbers(a, b);
    case 2:
      return a.as_text()->bytes.compare(b.as_text()->bytes);
    case 3:
      return compare_sequences(budget, *a.as_sequence(), *b.as_sequence());
    case 5:
      return std::less<Object*>()(a.as_object(), b.as_object()) ? -1 : a.as_object() != b.as_object();
    default:
      return 0;  // None, and all undefined values, are equal
  }
}

std::string int_repr(Int value) {
  if (value == 0) return "0";
  std::string digits;
  const bool negative = value < 0;
  for (; value != 0; value /= 10) digits += static_cast<char>('0' + (negative ? -(value % 10) : value % 10));
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace assay::jinja
