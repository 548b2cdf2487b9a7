// Python's operators on template values.
//
// Threads: pure but for the budget. Errors: RenderError with Python's words where templates may show them.
#pragma once

#include <string>
#include <string_view>

#include "server/text/template/value.h"

namespace assay::jinja {

bool truthy(const Value& value);
bool equals(Budget& budget, const Value& a, const Value& b);
// op: == != < <= > >=.
bool compare(Budget& budget, std::string_view op, const Value& a, const Value& b);
// a < b, for sorting.
bool less(Budget& budget, const Value& a, const Value& b);
bool contains(Budget& budget, const Value& container, const Value& item);

// op: + - * / // % **.
Value binary(Budget& budget, std::string_view op, const Value& a, const Value& b);
// op: - +.
Value unary(std::string_view op, const Value& value);

std::string to_text(Budget& budget, const Value& value);  // str(value)
std::string repr(Budget& budget, const Value& value);
// As they are when they are strings, else through str().
std::string_view text_view(Budget& budget, const Value& value, std::string& storage);

// Throws when the value is undefined: what Python does with an Undefined that is not just printed.
void require_defined(const Value& value);
// The value as an integer that fits 64 bits, or a TypeError that names `what`.
int64_t to_index(const Value& value, const char* what);

}  // namespace assay::jinja
