// Text events -> the JSON objects of the OpenAI API. Pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/http/json_text.h"
#include "server/http/openai_request.h"
#include "server/service/certificate.h"
#include "server/service/text_event.h"
#include "server/text/tokenizer.h"

namespace assay::http {

Json usage_json(const TextUsage& usage);
Json certificate_json(const CertificateReport& report);

// Logprobs of chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}.
Json chat_logprobs(const std::vector<TokenScore>& scores, int32_t top, const Tokenizer& tokenizer);
// Logprobs of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
Json completion_logprobs(const TextEvent& event, int32_t top, const Tokenizer& tokenizer);

// One choice of a reply that is not streamed.
Json whole_choice(const TextEvent& choice, const ReplyOptions& options, const Tokenizer& tokenizer);
// One choice of a chunk. `first`: nothing of this choice was sent before; then chat says the role.
Json chunk_choice(const TextEvent& event, const ReplyOptions& options, bool first, const Tokenizer& tokenizer);

// {"id", "object", "created", "model"}; choices and usage are added by the caller.
Json reply_frame(const ReplyOptions& options);

// "data: {...}\n\n"
std::string server_sent_event(const Json& data);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

}  // namespace assay::http
