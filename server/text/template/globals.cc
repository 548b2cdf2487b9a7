#include "server/text/template/globals.h"

#include "server/text/template/access.h"
#include "server/text/template/attribute_path.h"
#include "server/text/template/builtin_arguments.h"
#include "server/text/template/methods.h"
#include "server/text/template/text.h"

namespace assay::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's own limit

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Runtime&, Arguments) override {
    if (std::exchange(used_, true)) return separator_;
    return Value::string("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : Object(checked_depth(items)), items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Runtime& runtime, const std::string& name) override;
  Value next() {
    const Value value = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return value;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value cycler_next(Runtime&, const Value& self, const Arguments&) { return self.as<Cycler>()->next(); }
Value cycler_reset(Runtime&, const Value& self, const Arguments&) {
  self.as<Cycler>()->reset();
  return Value();
}
constexpr Builtin kCyclerMethods[] = {{"next", "", 0, cycler_next}, {"reset", "", 0, cycler_reset}};

std::optional<Value> Cycler::attribute(Runtime&, const std::string& name) {
  if (name == "current") return items_[at_];
  const Builtin* method = find_in(kCyclerMethods, name);
  return method ? std::optional<Value>(bound_method(Value::object(shared_from_this()), *method)) : std::nullopt;
}

std::vector<std::pair<Value, Value>> pairs_of(Runtime& runtime, const Arguments& a, const char* function) {
  std::vector<std::pair<Value, Value>> pairs;
  if (a.positional.size() > 1) fail(std::string(function) + " expected at most 1 argument");
  if (a.positional.size() == 1) {
    const Value& source = a.positional[0];
    require_defined(source);
    if (const Dict* dict = source.as_dict()) {
      pairs = dict->items;
    } else {
      for (const Value& item : iterate(runtime, source)) {
        const auto parts = iterate(runtime, item);
        if (parts.size() != 2)
          fail("dictionary update sequence element has length " + std::to_string(parts.size()) + "; 2 is required");
        pairs.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : a.named) pairs.emplace_back(Value::string(name), value);
  return pairs;
}

Value make_dict(Runtime& runtime, const Value&, const Arguments& a) {
  return Value::dict(runtime.budget, pairs_of(runtime, a, "dict"));
}

Value make_namespace(Runtime& runtime, const Value&, const Arguments& a) {
  auto made = runtime.make_cyclic<Namespace>();
  for (auto& [key, value] : pairs_of(runtime, a, "namespace")) {
    if (key.as_text()) made->set(key.as_text()->bytes, value);
  }
  return Value::object(made);
}

Value make_joiner(Runtime&, const Value&, const Arguments& a) {
  return Value::object(std::make_shared<Joiner>(a.has(0) ? a.at(0) : Value::string(", ")));
}

Value make_cycler(Runtime&, const Value&, const Arguments& a) {
  if (a.positional.empty()) fail("at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(a.positional));
}

Value make_range(Runtime& runtime, const Value&, const Arguments& a) {
  const int64_t first = to_index(a.at(0), "range() argument");
  const int64_t start = a.has(1) ? first : 0, stop = index_argument(a, 1, first, "range() argument");
  const int64_t step = index_argument(a, 2, 1, "range() argument");
  if (step == 0) fail("range() arg 3 must not be zero");
  const Int distance = step > 0 ? Int{stop} - start : Int{start} - stop;
  const Int stride = step > 0 ? Int{step} : -Int{step};
  const Int count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (count > kMaxRange) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  runtime.budget.create(static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(Value)));
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  return Value::sequence(SequenceKind::kRange, std::move(items));
}

Value raise_exception(Runtime& runtime, const Value&, const Arguments& a) {
  throw RenderError(ErrorKind::kRaised, to_text(runtime.budget, a.at(0)));
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& a) {
  const std::string& format = text_argument(a, 0, "strftime_now format");
  if (format.empty()) return Value::string("");
  if (format.size() > 256) fail("strftime_now: format is too long");
  char buffer[4096];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &runtime.now);
  return Value::string(std::string(buffer, size));
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", 0, make_cycler},
    {"dict", "*", 0, make_dict},
    {"joiner", "sep", 0, make_joiner},
    {"namespace", "*", 0, make_namespace},
    {"raise_exception", "message", 1, raise_exception},
    {"range", "start stop step", 1, make_range},
    {"strftime_now", "format", 1, strftime_now},
};

}  // namespace

std::string Namespace::repr(Budget& budget) const {
  std::string out = "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : attributes_) {
    out += (first ? "" : ", ") + quote(name) + ": " + jinja::repr(budget, value);
    first = false;
  }
  return out + "}>";
}

std::optional<Value> Namespace::attribute(Runtime&, const std::string& name) {
  const auto at = attributes_.find(name);
  return at == attributes_.end() ? std::nullopt : std::optional<Value>(at->second);
}

std::optional<Value> global_value(std::string_view name) {
  const Builtin* function = find_in(kGlobals, name);
  return function ? std::optional<Value>(bound_method(Value(), *function)) : std::nullopt;
}

}  // namespace assay::jinja
