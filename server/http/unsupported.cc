#include "server/http/unsupported.h"

#include <fmt/format.h>

#include "server/http/json_text.h"

namespace assay::http {
namespace {

// Present and not one of the values that mean "no".
bool is_set(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_array() || value.is_object()) return !value.empty();
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return true;
}

void refuse(Fields& fields, const char* name, const std::string& reason) {
  fields.fail(name, fmt::format("{} is not supported here: {}", name, reason));
}

void refuse_response_format(Fields& fields) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return;
  const auto type = format->find("type");
  if (type != format->end() && type->is_string() && *type == "text") return;
  refuse(fields, "response_format", "this server does not constrain its output yet; the only type it takes is \"text\"");
}

void refuse_tool_choice(Fields& fields) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "none" || *choice == "auto") return;
  refuse(fields, "tool_choice", "this server does not call tools yet; it takes \"none\" and \"auto\"");
}

}  // namespace

void refuse_unsupported(Fields& fields) {
  constexpr const char* kConstraints[] = {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                                          "structured_outputs", "grammar", "json_schema", "regex"};
  constexpr const char* kFeatures[] = {"tools", "functions", "suffix", "use_beam_search", "allowed_token_ids", "bad_words",
                                       "logits_processors", "prompt_embeds", "audio", "images"};
  for (const char* name : kConstraints) {
    const Json* value = fields.find(name);
    if (value != nullptr && is_set(*value)) refuse(fields, name, "this server does not constrain its output yet");
  }
  for (const char* name : kFeatures) {
    const Json* value = fields.find(name);
    if (value != nullptr && is_set(*value)) refuse(fields, name, "leave the field out");
  }
  refuse_response_format(fields);
  refuse_tool_choice(fields);
}

}  // namespace assay::http
