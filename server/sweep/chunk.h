// One data payload of an OpenAI completion or chat completion stream, read as far as the sweep needs it.
//
// Threads: pure. Errors: never throws; `kind` says when the payload is not a chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/sweep/record.h"

namespace assay::sweep {

struct Chunk {
  enum class Kind { kChunk, kDone, kError, kMalformed };
  Kind kind = Kind::kChunk;
  std::string error;  // message of kError, or what is wrong with a kMalformed payload

  bool has_choice = false;  // `choices` is not empty
  bool has_text = false;    // `text`, or `delta.content` / `delta.reasoning_content` / `delta.reasoning`, is not empty
  std::optional<int64_t> token_ids;  // how many token ids the chunk carries
  std::string finish_reason;         // empty: none yet

  struct Usage {
    std::optional<int64_t> prompt_tokens, completion_tokens;
    int64_t cached_tokens = 0;
  };
  std::optional<Usage> usage;
  std::optional<CertificateRecord> certificate;
};

Chunk parse_chunk(std::string_view data);

}  // namespace assay::sweep
