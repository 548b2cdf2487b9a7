// Renders a conversation to a prompt with the model's Jinja template.
//
// Threads: immutable after parse; render may be called from any thread.
// Errors: parse: InvalidArgument with line and what was not understood. render: InvalidArgument with the template's own message
// for raise_exception, FailedPrecondition for template run-time errors, ResourceExhausted when a limit (steps, output bytes,
// nesting) is exceeded.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace assay {

class ChatTemplate {
 public:
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> parse(std::string_view source);
  virtual ~ChatTemplate() = default;

  // `variables`: a JSON object with messages, tools, add_generation_prompt, bos_token, eos_token, ... Key order is kept
  // (nlohmann::ordered_json), since `tojson` prints it. Environment: trim_blocks, lstrip_blocks, loop controls, `tojson` without
  // ASCII escaping or sorting, `raise_exception`, `strftime_now`.
  virtual absl::StatusOr<std::string> render(const nlohmann::ordered_json& variables) const = 0;

  // True when the template iterates message['content'] as a list of parts: then lists are passed through, else joined.
  virtual bool wants_content_parts() const = 0;
};

}  // namespace assay
