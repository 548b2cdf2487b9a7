// Python's two ways to format: "..." % values and "...".format(...).
//
// Errors: RenderError for bad formats; the budget bounds widths.
#pragma once

#include <string>

#include "server/text/template/runtime.h"

namespace assay::jinja {

// `values`: a tuple, a dict (for %(name)s), or one value.
std::string format_percent(Budget& budget, const std::string& format, const Value& values);

std::string format_braces(Runtime& runtime, const std::string& format, const Arguments& arguments);

// format(value, spec).
std::string format_value(Budget& budget, const Value& value, const std::string& spec);

// Python's "%.*f" and friends: `type` is one of e E f F g G.
std::string format_float(double value, int precision, char type, bool alternate);
// Digits of an integer in base 2, 8, 10 or 16, with a minus sign where due.
std::string digits_of(Int value, int base, bool upper);
// Pads to `width` characters. align: < > ^, or = (after the sign).
std::string pad(Budget& budget, std::string text, int64_t width, const std::string& fill, char align);

}  // namespace assay::jinja
