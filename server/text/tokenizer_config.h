// What stands beside tokenizer.json in a model folder: the names of the special tokens and the chat template.
//
// Threads: a plain value. Errors: LoadError from the parse functions.
#pragma once

#include <string>

#include "server/text/json_node.h"

namespace assay {

struct TokenizerConfig {
  std::string bos_token;  // each empty where not stated
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string chat_template;

  // Takes over what `node` (tokenizer_config.json or special_tokens_map.json) states and is not known yet.
  void merge_tokens(const JsonNode& node);
  void merge_chat_template(const JsonNode& node);
};

}  // namespace assay
