#include "server/service/prompt.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/service/bounded_json.h"
#include "server/service/status.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> part_text(const Json& part, const std::string& field) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) return field_error(field, field + " must be an object with type \"text\"");
  const auto type = part.find("type");
  const std::string name = type != part.end() && type->is_string() ? type->get<std::string>() : "";
  if (name != "text") {
    return field_error(field, fmt::format("{}: parts of type \"{}\" are not supported, this model reads text only (type "
                                          "\"text\")", field, name));
  }
  const auto text = part.find("text");
  if (text == part.end() || !text->is_string()) return field_error(field + ".text", field + ".text must be a string");
  return text->get<std::string>();
}

absl::StatusOr<Json> normalise_parts(const Json& parts, const std::string& field, bool keep_parts) {
  Json list = Json::array();
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::StatusOr<std::string> text = part_text(parts[i], fmt::format("{}[{}]", field, i));
    if (!text.ok()) return text.status();
    if (i > 0) joined += '\n';
    joined += *text;
    list.push_back({{"type", "text"}, {"text", *text}});
  }
  if (keep_parts) return list;
  return Json(joined);
}

absl::StatusOr<Json> normalise_content(const Json& message, const std::string& field, bool keep_parts) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return Json("");
  if (content->is_string()) return *content;
  if (content->is_array()) return normalise_parts(*content, field, keep_parts);
  return field_error(field, field + " must be a string, an array of text parts or null");
}

// Templates print arguments as JSON; clients send them as a string that holds JSON.
absl::StatusOr<Json> normalise_arguments(const Json& arguments, const std::string& field) {
  if (!arguments.is_string()) return arguments;
  const std::string text = arguments.get<std::string>();
  if (text.empty()) return Json::object();
  absl::StatusOr<Json> parsed = parse_bounded_json(text);
  if (!parsed.ok()) {
    return field_error(field, fmt::format("{0} must be a string that holds a JSON object; it {1}", field,
                                          std::string(parsed.status().message())));
  }
  if (!parsed->is_object()) return field_error(field, field + " must be a string that holds a JSON object");
  return parsed;
}

absl::StatusOr<Json> normalise_tool_calls(const Json& calls, const std::string& field) {
  if (!calls.is_array()) return field_error(field, field + " must be an array");
  Json result = calls;
  for (size_t i = 0; i < result.size(); ++i) {
    const std::string name = fmt::format("{}[{}].function", field, i);
    if (!result[i].is_object() || !result[i].contains("function") || !result[i]["function"].is_object()) {
      return field_error(name, name + " must be an object");
    }
    Json& function = result[i]["function"];
    if (!function.contains("name") || !function["name"].is_string()) {
      return field_error(name + ".name", name + ".name must be a string");
    }
    if (!function.contains("arguments") || function["arguments"].is_null()) function["arguments"] = Json::object();
    absl::StatusOr<Json> arguments = normalise_arguments(function["arguments"], name + ".arguments");
    if (!arguments.ok()) return arguments.status();
    function["arguments"] = std::move(*arguments);
  }
  return result;
}

absl::Status copy_strings(const Json& from, const std::string& field, Json& to) {
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
    const auto value = from.find(key);
    if (value == from.end() || value->is_null()) continue;
    if (!value->is_string()) return field_error(field + "." + key, field + "." + key + " must be a string");
    to[key] = *value;
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> normalise_message(const Json& message, const std::string& field, bool keep_parts) {
  if (!message.is_object()) return field_error(field, field + " must be an object with role and content");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return field_error(field + ".role", field + ".role must be a string");
  Json result = Json::object();
  result["role"] = *role == "developer" ? Json("system") : *role;
  absl::StatusOr<Json> content = normalise_content(message, field + ".content", keep_parts);
  if (!content.ok()) return content.status();
  result["content"] = std::move(*content);
  if (absl::Status status = copy_strings(message, field, result); !status.ok()) return status;
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->is_null() && !(calls->is_array() && calls->empty())) {
    absl::StatusOr<Json> tool_calls = normalise_tool_calls(*calls, field + ".tool_calls");
    if (!tool_calls.ok()) return tool_calls.status();
    result["tool_calls"] = std::move(*tool_calls);
  }
  return result;
}

std::string content_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  return content.empty() ? std::string() : content.back()["text"].get<std::string>();
}

Json template_variables(const Conversation& conversation, Json messages, const Tokenizer& tokenizer) {
  Json variables = Json::object();
  variables["messages"] = std::move(messages);
  variables["tools"] = conversation.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = conversation.add_generation_prompt && !conversation.continue_final_message;
  const std::pair<const char*, const std::string*> specials[] = {{"bos_token", &tokenizer.bos_token()},
                                                                 {"eos_token", &tokenizer.eos_token()},
                                                                 {"pad_token", &tokenizer.pad_token()},
                                                                 {"unk_token", &tokenizer.unk_token()}};
  for (const auto& [name, text] : specials) {
    if (!text->empty()) variables[name] = *text;
  }
  if (conversation.chat_template_kwargs.is_object()) {
    for (const auto& [key, value] : conversation.chat_template_kwargs.items()) variables[key] = value;
  }
  return variables;
}

// Whatever stops a template, its limits included, is the conversation's fault: the server is not busy, a retry changes nothing.
absl::Status template_error(const absl::Status& status) { return field_error("messages", std::string(status.message())); }

absl::Status check_conversation(const Conversation& conversation) {
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    return field_error("continue_final_message",
                       "continue_final_message needs add_generation_prompt to be false: a prompt cannot do both");
  }
  for (const char* key : {"messages", "tools"}) {
    if (conversation.chat_template_kwargs.is_object() && conversation.chat_template_kwargs.contains(key)) {
      return field_error("chat_template_kwargs", fmt::format("chat_template_kwargs must not hold \"{}\"; use the request "
                                                             "field of that name", key));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> normalise_messages(const Json& messages, bool keep_parts) {
  if (!messages.is_array()) return field_error("messages", "messages must be an array of message objects");
  if (messages.empty()) return field_error("messages", "messages must hold at least one message");
  Json result = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    absl::StatusOr<Json> message = normalise_message(messages[i], fmt::format("messages[{}]", i), keep_parts);
    if (!message.ok()) return message.status();
    result.push_back(std::move(*message));
  }
  return result;
}

absl::StatusOr<std::string> cut_after_final_message(const std::string& rendered, const std::string& final_content) {
  size_t at = rendered.rfind(final_content);
  if (at != std::string::npos) return rendered.substr(0, at + final_content.size());
  // Many templates trim contents.
  const size_t first = final_content.find_first_not_of(" \t\r\n");
  const size_t last = final_content.find_last_not_of(" \t\r\n");
  if (first != std::string::npos) {
    const std::string trimmed = final_content.substr(first, last - first + 1);
    at = rendered.rfind(trimmed);
    if (at != std::string::npos) return rendered.substr(0, at + trimmed.size());
  }
  return field_error("continue_final_message",
                     "continue_final_message: the chat template does not print the last message as it is");
}

absl::StatusOr<std::string> render_conversation(const Conversation& conversation, const ChatTemplate& chat_template,
                                                const Tokenizer& tokenizer) {
  if (absl::Status status = check_conversation(conversation); !status.ok()) return status;
  absl::StatusOr<Json> messages = normalise_messages(conversation.messages, chat_template.wants_content_parts());
  if (!messages.ok()) return messages.status();
  const std::string final_content = content_text(messages->back()["content"]);
  absl::StatusOr<std::string> text =
      chat_template.render(template_variables(conversation, std::move(*messages), tokenizer));
  if (!text.ok()) return template_error(text.status());
  if (!conversation.continue_final_message) return text;
  return cut_after_final_message(*text, final_content);
}

}  // namespace assay
