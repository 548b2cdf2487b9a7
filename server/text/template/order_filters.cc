// Filters that compare items: sort, dictsort, min, max, unique, groupby.
#include <algorithm>
#include <set>

#include "server/text/template/access.h"
#include "server/text/template/attribute_path.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/filters.h"
#include "server/text/template/operators.h"

namespace assay::jinja {
namespace {

struct Keyed {
  Value key, item;
};

// Python's sorted(): stable, and stable in reverse too. A merge sort of our own calls, so a throwing comparison is
// safe.
void sort_by_key(Budget& budget, std::vector<Keyed>& items, bool reverse) {
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(),
                   [&](const Keyed& a, const Keyed& b) { return less(budget, a.key, b.key); });
  if (reverse) std::reverse(items.begin(), items.end());
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

// sort's attribute may name several, separated by commas.
std::vector<AttributePath> paths_of(const Value& attribute) {
  std::vector<AttributePath> paths;
  const Text* text = attribute.as_text();
  if (!text) {
    paths.emplace_back(attribute);
    return paths;
  }
  for (size_t begin = 0; begin <= text->bytes.size();) {
    const size_t end = std::min(text->bytes.find(',', begin), text->bytes.size());
    paths.emplace_back(Value::string(text->bytes.substr(begin, end - begin)));
    begin = end + 1;
  }
  return paths;
}

Value sort_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool case_sensitive = bool_argument(a, 1, false);
  const auto paths = paths_of(value_argument(a, 2));
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(runtime, self)) {
    std::vector<Value> keys;
    for (const auto& path : paths) keys.push_back(path.get_key(runtime, item, case_sensitive));
    keyed.push_back({Value::list(std::move(keys)), item});
  }
  sort_by_key(runtime.budget, keyed, bool_argument(a, 0, false));
  return Value::list(items_of(std::move(keyed)));
}

Value dictsort_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  require_defined(self);
  if (!self.as_dict()) fail("'" + type_name(self) + "' object has no attribute 'items'");
  const std::string by = a.has(1) ? text_argument(a, 1, "by") : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  const bool case_sensitive = bool_argument(a, 0, false);
  const AttributePath itself{Value()};
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.as_dict()->items) {
    keyed.push_back({itself.get_key(runtime, by == "key" ? key : value, case_sensitive), Value::tuple({key, value})});
  }
  sort_by_key(runtime.budget, keyed, bool_argument(a, 2, false));
  return Value::list(items_of(std::move(keyed)));
}

template <bool kMaximum>
Value extreme_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool case_sensitive = bool_argument(a, 0, false);
  const AttributePath path(value_argument(a, 1));
  const auto items = iterate(runtime, self);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = items[0], best_key = path.get_key(runtime, best, case_sensitive);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = path.get_key(runtime, items[i], case_sensitive);
    const bool better = kMaximum ? less(runtime.budget, best_key, key) : less(runtime.budget, key, best_key);
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Value unique_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool case_sensitive = bool_argument(a, 0, false);
  const AttributePath path(value_argument(a, 1));
  const auto before = [&](const Value& x, const Value& y) { return compare_keys(runtime.budget, x, y) < 0; };
  std::set<Value, decltype(before)> seen(before);
  std::vector<Value> out;
  for (const Value& item : iterate(runtime, self)) {
    const Value key = path.get_key(runtime, item, case_sensitive);
    if (!is_hashable(key)) fail("unhashable type: '" + type_name(key) + "'");
    if (seen.insert(key).second) out.push_back(item);
  }
  return make_iterator(std::move(out));
}

Value groupby_filter(Runtime& runtime, const Value& self, const Arguments& a) {
  const bool case_sensitive = bool_argument(a, 2, false);
  const AttributePath path(a.at(0), a.has(1) ? &a.at(1) : nullptr);
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(runtime, self)) keyed.push_back({path.get_key(runtime, item, case_sensitive), item});
  sort_by_key(runtime.budget, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> members;
    for (end = begin; end < keyed.size() && equals(runtime.budget, keyed[begin].key, keyed[end].key); ++end) {
      members.push_back(keyed[end].item);
    }
    if (end == begin) end = begin + 1;  // a key unequal to itself (nan)
    const Value grouper = path.get(runtime, keyed[begin].item);
    groups.push_back(Value::group(grouper, Value::list(std::move(members))));
  }
  return Value::list(std::move(groups));
}

constexpr Builtin kFilters[] = {
    {"dictsort", "case_sensitive by reverse", 0, dictsort_filter},
    {"groupby", "attribute default case_sensitive", 1, groupby_filter},
    {"max", "case_sensitive attribute", 0, extreme_filter<true>},
    {"min", "case_sensitive attribute", 0, extreme_filter<false>},
    {"sort", "reverse case_sensitive attribute", 0, sort_filter},
    {"unique", "case_sensitive attribute", 0, unique_filter},
};

}  // namespace

std::span<const Builtin> order_filters() { return kFilters; }

}  // namespace assay::jinja
