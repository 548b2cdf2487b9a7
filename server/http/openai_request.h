// Bodies of /v1/completions and /v1/chat/completions -> requests of the service.
//
// Threads: pure functions. Errors: InvalidArgument that names the field. What this server cannot do yet (tools, response
// formats, ...) is refused by name, never silently left out.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/http/json_text.h"
#include "server/service/fields.h"
#include "server/service/generate_request.h"

namespace assay::http {

// How the reply shall look.
struct ReplyOptions {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;     // one more chunk, with usage and no choices
  bool continuous_usage = false;  // usage on every chunk
  bool return_token_ids = false;
  bool scores = false;            // log probabilities
  int32_t top = 0;                // alternatives per token
  int32_t n = 1;
  int32_t sequences_per_prompt = 1;
  std::string id;     // "chatcmpl-..." or "cmpl-..."
  std::string model;  // as reported
  int64_t created = 0;  // seconds since 1970
};

struct OpenAiRequest {
  GenerateRequest generate;
  ReplyOptions reply;
};

absl::StatusOr<OpenAiRequest> parse_chat_request(const Json& body);
absl::StatusOr<OpenAiRequest> parse_completion_request(const Json& body);

// Parts shared with /tokenize.
Conversation parse_conversation(Fields& fields);

}  // namespace assay::http
