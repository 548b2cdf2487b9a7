// JSON text that anyone may have sent -> a value, at a cost that grows no faster than the text.
//
// Objects keep the order of their keys and find one by looking at each, so many keys in one object would cost their square:
// the text is checked in a pass of its own, before anything is built.
//
// Threads: pure functions.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace assay {

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int kMaxJsonKeys = 1024;  // of one object, equal ones counted each time

// The whole text must be one JSON value in UTF-8. Of equal keys the last one counts. InvalidArgument with what is wrong, to be
// read after the name of the text: "is nested deeper than 64 levels".
absl::StatusOr<nlohmann::ordered_json> parse_bounded_json(std::string_view text);

}  // namespace assay
