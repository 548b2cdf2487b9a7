// Request ids: the client's own when it is decent, else a new one.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace assay {

inline constexpr size_t kMaxRequestIdLength = 128;

// 32 random hexadecimal digits.
std::string make_request_id();

// The first kMaxRequestIdLength letters, digits and ._:- of what a client sent (it is echoed, logged, and part of reply ids);
// a new id when nothing is left.
std::string clean_request_id(std::string_view from_client);

}  // namespace assay
