#include "server/text/tokenizer_config.h"

#include <nlohmann/json.hpp>

namespace assay {
namespace {

// A token is written as its text or as an object with its text and flags.
void merge_token(const JsonNode& node, std::string_view key, std::string& token) {
  const auto field = node.find(key);
  if (!field || !token.empty()) return;
  token = field->value().is_object() ? field->at("content").string() : field->string();
}

}  // namespace

void TokenizerConfig::merge_tokens(const JsonNode& node) {
  merge_token(node, "bos_token", bos_token);
  merge_token(node, "eos_token", eos_token);
  merge_token(node, "pad_token", pad_token);
  merge_token(node, "unk_token", unk_token);
}

void TokenizerConfig::merge_chat_template(const JsonNode& node) {
  const auto field = node.find("chat_template");
  if (!field || !chat_template.empty()) return;
  if (field->value().is_string()) {
    chat_template = field->string();
    return;
  }
  for (size_t i = 0; i < field->size(); ++i) {
    const JsonNode entry = field->item(i);
    if (entry.at("name").string() == "default") chat_template = entry.at("template").string();
  }
}

}  // namespace assay
