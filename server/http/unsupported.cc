#include "server/http/unsupported.h"

#include <fmt/format.h>

#include "server/http/json_text.h"

namespace assay::http {
namespace {

constexpr const char* kUnconstrained = "this server does not constrain its output yet";

struct Feature {
  const char* name;
  const char* reason;
};

constexpr Feature kFeatures[] = {
    {"guided_json", kUnconstrained}, {"guided_regex", kUnconstrained}, {"guided_choice", kUnconstrained},
    {"guided_grammar", kUnconstrained}, {"structured_outputs", kUnconstrained}, {"grammar", kUnconstrained},
    {"json_schema", kUnconstrained}, {"regex", kUnconstrained}, {"ebnf", kUnconstrained},
    {"tools", "this server does not call tools yet"}, {"functions", "this server does not call tools yet"},
    {"suffix", "the prompt is continued, not filled in"}, {"use_beam_search", "leave the field out"},
    {"allowed_token_ids", "leave the field out"}, {"bad_words", "leave the field out"},
    {"logits_processors", "leave the field out"}, {"prompt_embeds", "send text or token ids"},
    {"audio", "the model reads and writes text only"}, {"images", "the model reads and writes text only"},
    {"web_search_options", "this server searches nothing"},
    {"prompt_logprobs", "use echo with logprobs on /v1/completions"},
    {"truncate_prompt_tokens", "shorten the prompt before sending it"},
    {"chat_template", "the template is the server's (--chat-template)"},
    {"documents", "put the documents into the messages"}};

// Samplers of other servers. Front ends send them all, with the value that turns each off.
struct Sampler {
  const char* name;
  double off;
};

constexpr Sampler kSamplers[] = {{"typical_p", 1.0}, {"mirostat", 0.0}, {"dry_multiplier", 0.0}, {"xtc_probability", 0.0},
                                 {"no_repeat_ngram_size", 0.0}, {"top_a", 0.0}, {"tfs_z", 1.0}};

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
  refuse(fields, "response_format", std::string(kUnconstrained) + "; the only type it takes is \"text\"");
}

// `tool_choice`, and `function_call` of old clients.
void refuse_choice_of_tools(Fields& fields, const char* name) {
  const Json* choice = fields.find(name);
  if (choice == nullptr || *choice == "none" || *choice == "auto") return;
  refuse(fields, name, "this server does not call tools yet; it takes \"none\" and \"auto\"");
}

void refuse_modalities(Fields& fields) {
  for (const std::string& modality : fields.strings("modalities")) {
    if (modality != "text") refuse(fields, "modalities", "the model writes text only");
  }
}

}  // namespace

void refuse_unsupported(Fields& fields) {
  for (const Feature& feature : kFeatures) {
    const Json* value = fields.find(feature.name);
    if (value != nullptr && is_set(*value)) refuse(fields, feature.name, feature.reason);
  }
  for (const Sampler& sampler : kSamplers) {
    const Json* value = fields.find(sampler.name);
    const bool off = value == nullptr || (value->is_number() && value->get<double>() == sampler.off);
    if (!off) refuse(fields, sampler.name, fmt::format("leave the field out, or turn it off ({:g})", sampler.off));
  }
  refuse_response_format(fields);
  refuse_choice_of_tools(fields, "tool_choice");
  refuse_choice_of_tools(fields, "function_call");
  refuse_modalities(fields);
}

}  // namespace assay::http
