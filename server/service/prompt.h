// A conversation as clients send it -> the prompt text its chat template makes of it.
//
// Threads: pure functions. Errors: InvalidArgument naming the message or field at fault, or with the template's own words.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "server/service/generate_request.h"
#include "server/text/chat_template.h"
#include "server/text/tokenizer.h"

namespace assay {

// Checked copy of `messages`: roles are strings (developer becomes system), null content is empty, text parts are joined by a
// newline unless `keep_parts`, arguments of tool calls are objects, unknown keys are dropped.
absl::StatusOr<nlohmann::ordered_json> normalise_messages(const nlohmann::ordered_json& messages, bool keep_parts);

absl::StatusOr<std::string> render_conversation(const Conversation& conversation, const ChatTemplate& chat_template,
                                                const Tokenizer& tokenizer);

// Cuts `rendered` right after the last occurrence of the final message's content, so that the model goes on from there.
absl::StatusOr<std::string> cut_after_final_message(const std::string& rendered, const std::string& final_content);

}  // namespace assay
