// A running generation -> the reply of an OpenAI route, streamed or whole.
//
// Threads: as Producer. Owns the generation: destroying the producer cancels it.
#pragma once

#include <memory>

#include "server/http/message.h"
#include "server/http/openai_request.h"
#include "server/service/generation.h"
#include "server/text/tokenizer.h"

namespace assay::http {

Reply make_openai_reply(std::unique_ptr<Generation> generation, ReplyOptions options);

}  // namespace assay::http
