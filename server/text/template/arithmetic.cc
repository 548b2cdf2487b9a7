// + - * / // % ** with Python's meaning.
#include <cmath>

#include "server/text/template/format.h"
#include "server/text/template/operators.h"

namespace assay::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (op == "+" && a.as_text()) fail("can only concatenate str (not \"" + type_name(b) + "\") to str");
  if (op == "+" && a.as_sequence() && a.as_sequence()->kind <= SequenceKind::kTuple) {
    const std::string name = type_name(a);
    fail("can only concatenate " + name + " (not \"" + type_name(b) + "\") to " + name);
  }
  const std::string shown = op == "**" ? "** or pow()" : std::string(op);
  fail("unsupported operand type(s) for " + shown + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

[[noreturn]] void overflow() { fail("integer overflow: the result does not fit 127 bits"); }

Int floor_divide(Int a, Int b) {
  const Int quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int floor_modulo(Int a, Int b) {
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double float_floor_divide(double a, double b) {
  const double exact = (a - float_modulo(a, b)) / b;
  const double down = std::floor(exact);
  return exact - down > 0.5 ? down + 1 : down;
}

Value integer_power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  Int result = 1;
  for (; exponent > 0; --exponent) {  // |base| >= 2: at most 127 rounds
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  }
  return Value::integer(result);
}

Value integer_operation(std::string_view op, Int a, Int b) {
  Int result = 0;
  bool overflowed = false;
  if (op == "+") {
    overflowed = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflowed = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflowed = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return integer_power(a, b);
  } else if (b == 0) {
    fail(op == "/" ? "division by zero" : "integer division or modulo by zero");
  } else if (op == "/") {
    return Value::number(static_cast<double>(a) / static_cast<double>(b));
  } else if (b == -1) {  // the one quotient that may not fit
    if (op == "%") return Value::integer(0);
    overflowed = __builtin_sub_overflow(Int{0}, a, &result);
  } else {
    result = op == "//" ? floor_divide(a, b) : floor_modulo(a, b);
  }
  if (overflowed) overflow();
  return Value::integer(result);
}

Value float_operation(std::string_view op, double a, double b) {
  if (op == "+") return Value::number(a + b);
  if (op == "-") return Value::number(a - b);
  if (op == "*") return Value::number(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) fail("the power is a complex number");
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("Numerical result out of range");
    return Value::number(result);
  }
  if (b == 0) fail(op == "/" ? "float division by zero" : op == "//" ? "float floor division by zero" : "float modulo");
  if (op == "/") return Value::number(a / b);
  return Value::number(op == "//" ? float_floor_divide(a, b) : float_modulo(a, b));
}

// The product of sizes, cut off where any budget ends.
int64_t repeated_size(size_t size, Int times) {
  if (times <= 0 || size == 0) return 0;
  const Int product = times > (Int{1} << 62) ? Int{1} << 62 : static_cast<Int>(size) * times;
  return product > (Int{1} << 62) ? int64_t{1} << 62 : static_cast<int64_t>(product);
}

Value repeat_text(Budget& budget, const std::string& text, Int times) {
  const int64_t size = repeated_size(text.size(), times);
  budget.create(size);
  std::string out;
  out.reserve(static_cast<size_t>(size));
  while (static_cast<int64_t>(out.size()) < size) out += text;
  return Value::string(std::move(out));
}

Value repeat_items(Budget& budget, const Sequence& sequence, Int times) {
  const int64_t size = repeated_size(sequence.items.size(), times);
  budget.create(repeated_size(sizeof(Value), size));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(size));
  while (static_cast<int64_t>(items.size()) < size) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return Value::sequence(sequence.kind, std::move(items));
}

bool is_list_or_tuple(const Value& value) {
  return value.as_sequence() && value.as_sequence()->kind <= SequenceKind::kTuple;
}

Value multiply(Budget& budget, const Value& a, const Value& b) {
  for (const auto& [what, times] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const auto count = times->integral();
    if (!count) continue;
    if (const Text* text = what->as_text()) return repeat_text(budget, text->bytes, *count);
    if (is_list_or_tuple(*what)) return repeat_items(budget, *what->as_sequence(), *count);
  }
  unsupported("*", a, b);
}

Value add(Budget& budget, const Value& a, const Value& b) {
  if (a.as_text() && b.as_text()) {
    const std::string &x = a.as_text()->bytes, &y = b.as_text()->bytes;
    budget.create(static_cast<int64_t>(x.size() + y.size()));
    return Value::string(x + y);
  }
  const bool sequences = is_list_or_tuple(a) && is_list_or_tuple(b) && a.as_sequence()->kind == b.as_sequence()->kind;
  if (!sequences) unsupported("+", a, b);
  std::vector<Value> items = a.as_sequence()->items;
  const auto& more = b.as_sequence()->items;
  budget.create(static_cast<int64_t>((items.size() + more.size()) * sizeof(Value)));
  items.insert(items.end(), more.begin(), more.end());
  return Value::sequence(a.as_sequence()->kind, std::move(items));
}

}  // namespace

Value binary(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  budget.step();
  const auto x = a.integral(), y = b.integral();
  if (x && y) return integer_operation(op, *x, *y);
  if (a.real() && b.real()) return float_operation(op, *a.real(), *b.real());
  if (op == "+") return add(budget, a, b);
  if (op == "*") return multiply(budget, a, b);
  if (op == "%" && a.as_text()) return Value::string(format_percent(budget, a.as_text()->bytes, b));
  unsupported(op, a, b);
}

Value unary(std::string_view op, const Value& value) {
  require_defined(value);
  if (const double* d = value.as_float()) return Value::number(op == "-" ? -*d : *d);
  const auto i = value.integral();
  if (!i) fail("bad operand type for unary " + std::string(op) + ": '" + type_name(value) + "'");
  if (op == "+") return Value::integer(*i);
  return integer_operation("-", 0, *i);
}

}  // namespace assay::jinja
