// The bytes of a reply's head and of chunks. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "server/http/message.h"

namespace assay::http {

enum class BodyFraming { kLength, kChunked, kUntilClose };

// Status line and headers, ready to send. `body_size` counts for kLength only.
std::string head_text(int status, const Headers& headers, BodyFraming framing, size_t body_size, bool keep_alive,
                      bool http_1_0);

// One chunk of a chunked body; empty text gives the last chunk.
std::string chunk_text(std::string_view text);

std::string_view reason_phrase(int status);

}  // namespace assay::http
