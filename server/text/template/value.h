// Values of the template language: Python's, as far as templates can tell.
//
// Owns: strings, lists and dicts are immutable and shared; objects (namespace, macro, loop, ...) have identity.
// Threads: one render each. Errors: making a value nested deeper than kMaxValueDepth throws RenderError(kLimit).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/text/template/limits.h"

namespace assay::jinja {

// Wide enough for every integer of a JSON document; overflow is an error.
__extension__ typedef __int128 Int;

class Runtime;
class Value;

struct Text {
  std::string bytes;
  bool ascii;
};

struct Undefined {
  std::string message;  // what using it says
};

enum class SequenceKind { kList, kTuple, kRange, kDictKeys, kDictValues, kDictItems };

struct Sequence;
struct Dict;
class Object;

using TextPtr = std::shared_ptr<const Text>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;
using UndefinedPtr = std::shared_ptr<const Undefined>;

class Value {
 public:
  Value() = default;  // None
  static Value boolean(bool value) { return Value(Variant(value)); }
  static Value integer(Int value) { return Value(Variant(value)); }
  static Value number(double value) { return Value(Variant(value)); }
  static Value string(std::string bytes);
  static Value undefined(std::string message);
  static Value list(std::vector<Value> items) { return sequence(SequenceKind::kList, std::move(items)); }
  static Value tuple(std::vector<Value> items) { return sequence(SequenceKind::kTuple, std::move(items)); }
  static Value sequence(SequenceKind kind, std::vector<Value> items);
  // groupby's tuple, whose items are also attributes `grouper` and `list`.
  static Value group(Value grouper, Value members);
  // A later pair of an equal key wins, at the place of the first. Keys must be hashable.
  static Value dict(Budget& budget, std::vector<std::pair<Value, Value>> items);
  static Value object(ObjectPtr object) { return Value(Variant(std::move(object))); }

  bool is_none() const { return std::holds_alternative<std::monostate>(variant_); }
  const bool* as_bool() const { return std::get_if<bool>(&variant_); }
  const Int* as_int() const { return std::get_if<Int>(&variant_); }
  const double* as_float() const { return std::get_if<double>(&variant_); }
  const Text* as_text() const { return pointer<TextPtr>(); }
  const Undefined* as_undefined() const { return pointer<UndefinedPtr>(); }
  const Sequence* as_sequence() const { return pointer<SequencePtr>(); }
  const Dict* as_dict() const { return pointer<DictPtr>(); }
  Object* as_object() const {
    const auto* found = std::get_if<ObjectPtr>(&variant_);
    return found ? found->get() : nullptr;
  }
  template <class T>
  T* as() const {
    return dynamic_cast<T*>(as_object());
  }
  SequencePtr share_sequence() const { return std::get<SequencePtr>(variant_); }
  DictPtr share_dict() const { return std::get<DictPtr>(variant_); }

  // int or bool as a number.
  std::optional<Int> integral() const;
  // int, bool or float as a double.
  std::optional<double> real() const;
  int depth() const;
  // Python's `is`.
  bool same_as(const Value& other) const;

 private:
  using Variant =
      std::variant<std::monostate, bool, Int, double, TextPtr, UndefinedPtr, SequencePtr, DictPtr, ObjectPtr>;
  explicit Value(Variant variant) : variant_(std::move(variant)) {}
  template <class Pointer>
  auto pointer() const -> decltype(std::declval<Pointer>().get()) {
    const auto* found = std::get_if<Pointer>(&variant_);
    return found ? found->get() : nullptr;
  }

  Variant variant_;
};

struct Sequence {
  SequenceKind kind;
  std::vector<Value> items;
  int depth;
  bool is_group = false;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  std::vector<uint32_t> order;                 // indices into items, sorted by key
  int depth;

  const Value* find(Budget& budget, const Value& key) const;  // key must be hashable
  const Value* find(std::string_view key) const;
};

// Arguments of a call. `bound` is filled by bind() for builtins that name their parameters.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  std::vector<std::optional<Value>> bound;

  bool has(size_t i) const { return i < bound.size() && bound[i].has_value(); }
  const Value& at(size_t i) const { return *bound[i]; }
};

// Things with identity and behaviour.
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(int depth = 1);
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr(Budget& budget) const;
  // Python's getattr; nothing when there is no such attribute.
  virtual std::optional<Value> attribute(Runtime& runtime, const std::string& name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Runtime& runtime, Arguments arguments);
  // Drops references to other values: breaks cycles at the end of a render.
  virtual void clear() {}
  int depth() const { return depth_; }

 private:
  int depth_;
};

// A generator: its items can be taken once.
class Iterator : public Object {
 public:
  explicit Iterator(std::vector<Value> items);
  std::string type_name() const override { return "generator"; }
  std::optional<Value> next();
  std::vector<Value> take_rest();

 private:
  std::vector<Value> items_;
  size_t next_ = 0;
};

Value make_iterator(std::vector<Value> items);

// Depth of a container of these; throws beyond kMaxValueDepth.
int checked_depth(const std::vector<Value>& items);
int checked_depth(int deepest_item);

std::string type_name(const Value& value);         // Python's type(value).__name__
bool is_hashable(const Value& value);
// A total order of hashable values in which equal keys of a dict are equal: <0, 0, >0.
int compare_keys(Budget& budget, const Value& a, const Value& b);
std::string int_repr(Int value);

}  // namespace assay::jinja
